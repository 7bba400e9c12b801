//! The words that fingerprints are made of: these must stay as they are, whatever things are called
//! elsewhere, or no run would know the one that it goes on with.

use crate::Extent;
use roundelay_schedule::{Element, Form, Products, Protocol, Treatment, Way};

pub(super) fn element(element: Element) -> &'static str {
    match element {
        Element::Real => "Real",
        Element::Wide => "Wide",
        Element::I32 => "I32",
    }
}

pub(super) fn shape(shape: &[Extent]) -> String {
    let extent = |Extent { size, per_example }: &Extent| {
        format!("Extent {{ size: {size}, per_example: {per_example} }}")
    };
    listed(shape.iter().map(extent))
}

pub(super) fn treatment(treatment: Treatment) -> String {
    match treatment {
        Treatment::Decayed => "Decayed".to_owned(),
        Treatment::Spared => "Spared".to_owned(),
        Treatment::Averaged { momentum } => {
            format!("Averaged {{ momentum: {momentum:?} }}")
        }
    }
}

pub(super) fn products(products: Products) -> String {
    let Products { ramp, attention, unaligned } = products;
    format!(
        "Products {{ ramp: Nanos({}), attention: {}, unaligned: {} }}",
        ramp.0, attention.0, unaligned.0
    )
}

pub(super) fn ways(ways: &[Way]) -> String {
    listed(ways.iter().map(|way| match way {
        Way::Form(form) => format!("Form({})", formed(*form)),
        Way::Short(protocol) => format!("Short({})", spoken(*protocol)),
        Way::Nvls(protocol) => format!("Nvls({})", spoken(*protocol)),
    }))
}

fn formed(form: Form) -> &'static str {
    match form {
        Form::Ring => "Ring",
        Form::Rails => "Rails",
        Form::Tree => "Tree",
        Form::Nested => "Nested",
    }
}

fn spoken(protocol: Protocol) -> String {
    let Protocol { bandwidth, startup } = protocol;
    format!(
        "Protocol {{ bandwidth: BytesPerSecond({}), startup: Nanos({}) }}",
        bandwidth.0, startup.0
    )
}

fn listed(words: impl Iterator<Item = String>) -> String {
    format!("[{}]", words.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::{BytesPerSecond, Nanos, Thousandths};

    /// As they are, not as they would be called today.
    #[test]
    fn words_stay() {
        let elements = [Element::Real, Element::Wide, Element::I32].map(element);
        assert_eq!(elements, ["Real", "Wide", "I32"]);
        let treatments = [
            Treatment::Decayed,
            Treatment::Spared,
            Treatment::Averaged { momentum: 1.0 },
        ];
        let words = ["Decayed", "Spared", "Averaged { momentum: 1.0 }"];
        assert_eq!(treatments.map(treatment), words);
        let extents = [
            Extent { size: 1, per_example: true },
            Extent { size: 128, per_example: false },
        ];
        assert_eq!(
            shape(&extents),
            "[Extent { size: 1, per_example: true }, Extent { size: 128, per_example: false }]"
        );
        let [attention, unaligned] = [700, 300].map(Thousandths);
        let own = Products { ramp: Nanos(9), attention, unaligned };
        let words = "Products { ramp: Nanos(9), attention: 700, unaligned: 300 }";
        assert_eq!(products(own), words);
        let forms = [Form::Ring, Form::Rails, Form::Tree, Form::Nested];
        let words = "[Form(Ring), Form(Rails), Form(Tree), Form(Nested)]";
        assert_eq!(ways(&forms.map(Way::Form)), words);
        let fast = Protocol { bandwidth: BytesPerSecond(5), startup: Nanos(7) };
        let both = "Protocol { bandwidth: BytesPerSecond(5), startup: Nanos(7) }";
        let words = format!("[Short({both}), Nvls({both})]");
        assert_eq!(ways(&[Way::Short(fast), Way::Nvls(fast)]), words);
    }
}
