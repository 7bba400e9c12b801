//! Where RoBERTa differs from BERT.

use super::{edited, imported};
use roundelay::ImportOptions;
use serde_json::json;

/// A padding token that is the last of the positions leaves none.
#[test]
fn positions_of_roberta_begin_behind_padding() {
    let padded = |token: u64| {
        let text = edited("roberta-base", &[("pad_token_id", json!(token))]);
        imported(&text, &ImportOptions::default())
    };
    let text = padded(3).expect("there are positions").text;
    assert!(text.contains("seq = 510") && text.contains("first = 4"), "{text}");
    let wrong = padded(513).expect_err("there are none").to_string();
    assert!(wrong.contains("leaves none of 514 positions to tokens"), "{wrong}");
}

/// RoBERTa drops what its pooler reads, and BERT what it makes alone.
#[test]
fn poolers_drop_what_their_class_drops() {
    let text = |release: &str, class: &str| {
        let text = edited(release, &[("architectures", json!([class]))]);
        imported(&text, &ImportOptions::default()).expect("it is known").text
    };
    let own = text("roberta-base", "RobertaForSequenceClassification");
    assert_eq!(own.matches("dropout(select(x, 0), 0.1)").count(), 1, "{own}");
    let own = text("bert-base-uncased", "BertForSequenceClassification");
    assert_eq!(own.matches("dropout(select(x, 0), 0.1)").count(), 0, "{own}");
    assert_eq!(own.matches("linear(select(x, 0)").count(), 1, "{own}");
}
