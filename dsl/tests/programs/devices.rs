//! What the shipped devices say about themselves.

use roundelay_dsl::{NoFiles, SourceFile, parse};

/// No shipped device prices wider numbers like those that its matrix units are for, and the one that
/// has no units for bf16 says so.
#[test]
fn shipped_devices_know_what_each_number_type_takes() {
    let said = |device: &str, name: &str, dtype: &str| {
        let text = format!(
            "import \"roundelay:devices/{device}.rdl\"
            model line {{
                input x: real[batch, 4]
                loss mse(linear(x, 4), x)
            }}
            cluster one {{ 1 x {name} }}
            train {{ data synthetic, batch 8, steps 2, dtype {dtype}, optimizer sgd(lr = 0.1) }}"
        );
        let source = SourceFile::new("line.rdl", text);
        let (program, warnings) = parse(&source, &NoFiles).expect("it is right");
        let device = program.target.devices.values().next().expect("there is one");
        (device.compute.0, warnings)
    };
    for device in ["a100", "a100-40", "a100-80", "h100", "h200", "b200", "v100"] {
        let name = device.replace('-', "_");
        let [wide, narrow] = ["f32", "bf16"].map(|dtype| said(device, &name, dtype));
        assert!(wide.1.is_empty(), "{:?}", wide.1);
        assert!(wide.0 * 4 < narrow.0, "{device}: f32 {}, bf16 {}", wide.0, narrow.0);
        assert!(said(device, &name, "f64").0 < narrow.0, "{device}");
        match device {
            "v100" => assert!(narrow.1[0].message.contains("has no units for bf16")),
            _ => assert!(narrow.1.is_empty(), "{:?}", narrow.1),
        }
    }
    assert_eq!(said("a100", "a100", "f32").0, 19_500_000_000_000);
}
