//! The documentation of the crate, which is the contract of the catalogue, against its kernels.

use crate::common::sample::{Draw, sample};
use roundelay_kernels::NAMES;

const CONTRACT: &str = include_str!("../../src/lib.rs");

#[test]
fn the_table_has_a_row_for_each_kernel_in_the_order_of_their_names() {
    let rows = CONTRACT.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(names, NAMES);
}

#[test]
fn attributes_are_documented() {
    for name in NAMES {
        for seed in 0..50 {
            let call = sample(name, &mut Draw::new(seed));
            for attribute in call.attributes.keys() {
                let documented = CONTRACT.contains(&format!("`{attribute}`"));
                assert!(documented, "`{attribute}` of {name}");
            }
        }
    }
}
