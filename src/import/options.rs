//! What is asked for besides the configuration, and what comes of it.

use roundelay_dsl::Diagnostic;
use roundelay_runtime::Translation;

/// What a configuration does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Positions of a sequence; by default those of the model, at most 2048.
    pub sequence: Option<u64>,
    /// Examples of a training step; by default as many as the cluster has devices.
    pub batch: Option<u32>,
    /// What the model trains in; by default bf16 where its weights are stored in 16 bits, else f32.
    pub dtype: Option<ImportDtype>,
    /// Whose devices and links the cluster is made of.
    pub cluster: ImportCluster,
    /// Nodes of eight devices; by default as many as hold the model.
    pub nodes: Option<u32>,
    /// Unknown fields that change nothing.
    pub ignored: Vec<String>,
}

/// What an imported model trains in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportDtype {
    /// 32 bits.
    F32,
    /// Mixed precision with bf16; losses of f16 would have to be scaled.
    Bf16,
}

/// A cluster that the compiler has constants of: nodes of eight devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportCluster {
    /// DGX A100 with 80 GB a device.
    #[default]
    DgxA100,
    /// DGX H100.
    DgxH100,
    /// DGX B200.
    DgxB200,
    /// Azure ND A100 v4, with 40 GB a device.
    AzureNdA100,
    /// AWS p5en: H200.
    AwsP5en,
}

/// A program for a model of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The program's text, in its canonical form.
    pub text: String,
    /// The family: its `model_type`.
    pub family: &'static str,
    /// How many numbers the model trains.
    pub parameters: u64,
    /// How weights that are published for the configuration hold the program's parameters.
    pub weights: Translation,
    /// What is not as the configuration says, without changing the model.
    pub warnings: Vec<Diagnostic>,
}

impl ImportDtype {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::F32, Self::Bf16];

    /// As a program spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

impl ImportCluster {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::DgxA100, Self::DgxH100, Self::DgxB200, Self::AzureNdA100, Self::AwsP5en];

    /// As the shipped files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::DgxA100 => "dgx-a100",
            Self::DgxH100 => "dgx-h100",
            Self::DgxB200 => "dgx-b200",
            Self::AzureNdA100 => "azure-nd-a100",
            Self::AwsP5en => "aws-p5en",
        }
    }

    /// The name of its devices.
    pub(super) fn device(self) -> &'static str {
        match self {
            Self::DgxA100 => "a100_80",
            Self::DgxH100 => "h100",
            Self::DgxB200 => "b200",
            Self::AzureNdA100 => "a100_40",
            Self::AwsP5en => "h200",
        }
    }
}
