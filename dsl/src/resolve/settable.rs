//! What `--set` may change of the parts of a program.

/// Something of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Of the links of a name.
    Link(LinkKey),
    /// Of all devices of a name.
    Device(DeviceKey),
    /// The memory that a group shares.
    Sharing,
    /// How many devices the cluster has.
    Devices,
    /// Of the training.
    Train(TrainKey),
}

/// A number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKey {
    Memory,
    Compute,
    Bandwidth,
    Issue,
    Price,
}

/// What a training has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrainKey {
    /// The examples of a step.
    Batch,
    Optimizer,
    Steps,
    Seed,
    /// The type of its numbers, which decides how a program is read.
    Dtype,
}

/// A number of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKey {
    Bandwidth,
    Latency,
}

impl Key {
    /// What a device may be set to have.
    pub(super) const DEVICE: [Self; 5] = [
        Self::Device(DeviceKey::Memory),
        Self::Device(DeviceKey::Compute),
        Self::Device(DeviceKey::Bandwidth),
        Self::Device(DeviceKey::Issue),
        Self::Device(DeviceKey::Price),
    ];
    /// What a link may be set to have.
    pub(super) const LINK: [Self; 2] =
        [Self::Link(LinkKey::Bandwidth), Self::Link(LinkKey::Latency)];

    /// What a training may be set to have.
    pub(super) const TRAIN: [Self; 5] = [
        Self::Train(TrainKey::Batch),
        Self::Train(TrainKey::Optimizer),
        Self::Train(TrainKey::Steps),
        Self::Train(TrainKey::Seed),
        Self::Train(TrainKey::Dtype),
    ];

    /// How it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Device(DeviceKey::Memory) => "memory",
            Self::Device(DeviceKey::Compute) => "compute",
            Self::Device(DeviceKey::Bandwidth) | Self::Link(LinkKey::Bandwidth) => {
                "bandwidth"
            }
            Self::Device(DeviceKey::Issue) => "issue",
            Self::Device(DeviceKey::Price) => "price",
            Self::Link(LinkKey::Latency) => "latency",
            Self::Sharing => "sharing",
            Self::Devices => "devices",
            Self::Train(TrainKey::Batch) => "batch",
            Self::Train(TrainKey::Optimizer) => "optimizer",
            Self::Train(TrainKey::Steps) => "steps",
            Self::Train(TrainKey::Seed) => "seed",
            Self::Train(TrainKey::Dtype) => "dtype",
        }
    }

    /// The key that is written so, whatever has it. Links come first: what a group is joined by is
    /// more often meant than what its devices have.
    pub(super) fn named(name: &str) -> Option<Self> {
        let others = [Self::Sharing, Self::Devices].into_iter().chain(Self::TRAIN);
        let mut all = Self::LINK.into_iter().chain(Self::DEVICE).chain(others);
        all.find(|key| key.name() == name)
    }
}
