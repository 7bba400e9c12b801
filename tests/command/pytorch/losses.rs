//! What PyTorch says: printed by `benches/pytorch_losses.py`, in 64 bits.

use super::Case;

pub(crate) const MLP: Case = Case {
    name: "mlp.rdl",
    source: include_str!("../../pytorch/mlp.rdl"),
    losses: [
        0.6082849244188422,
        0.4953781517470006,
        0.35835742788670466,
        0.30967277800483883,
        0.1936983000229875,
        0.21032305344417632,
        0.19149610969163033,
        0.19288750180213934,
        0.22344414054630002,
        0.14863120787984535,
    ],
};

pub(crate) const GPT: Case = Case {
    name: "gpt.rdl",
    source: include_str!("../../pytorch/gpt.rdl"),
    losses: [
        4.611763684258484,
        4.337897276369671,
        4.423463397045177,
        4.052473403653947,
        3.7259649220431053,
        3.51262384713905,
        3.416808695067049,
        3.1958499953178516,
        3.0315399933986766,
        2.991475405753734,
    ],
};

pub(crate) const RESNET: Case = Case {
    name: "resnet.rdl",
    source: include_str!("../../pytorch/resnet.rdl"),
    losses: [
        2.520756087368658,
        2.8561966671519903,
        2.7714094999259338,
        2.429887471248968,
        2.6712067966559285,
        2.8878934219605075,
        3.0077069377895644,
        2.5949957114652245,
        2.984066943147628,
        2.9570055992606017,
    ],
};

pub(crate) const VIT: Case = Case {
    name: "vit.rdl",
    source: include_str!("../../pytorch/vit.rdl"),
    losses: [
        2.7313888093294922,
        2.376380215131171,
        2.824455405301423,
        2.836981352105325,
        2.823593755132947,
        2.402728119436948,
        2.491627488679583,
        2.7218015904494477,
        2.4352999461276306,
        2.5008133280730256,
    ],
};

pub(crate) const GPT2: Case = Case {
    name: "gpt2.rdl",
    source: include_str!("../../pytorch/gpt2.rdl"),
    losses: [
        4.400605137731652,
        4.355225990123071,
        4.421085372266151,
        4.144499354708984,
        4.111674439788707,
        4.059406984617245,
        3.9417338700403786,
        3.9048310519381757,
        3.6629314518376312,
        3.7612418217449353,
    ],
};

pub(crate) const LLAMA: Case = Case {
    name: "llama.rdl",
    source: include_str!("../../pytorch/llama.rdl"),
    losses: [
        4.309376176651759,
        4.2597976199463385,
        4.0463181201506835,
        3.773476187022449,
        3.709976547264051,
        3.487943900416369,
        3.395869779212365,
        3.3114511818152104,
        3.144574854662457,
        3.2555624416785993,
    ],
};

pub(crate) const HYBRID: Case = Case {
    name: "hybrid.rdl",
    source: include_str!("../../pytorch/hybrid.rdl"),
    losses: [
        2.533244181391857,
        3.248968171253564,
        2.3595541931828574,
        2.8777751916724066,
        2.522428887749787,
        2.3966515746416786,
        2.678042479629627,
        2.825314359752726,
        2.2706011579651344,
        2.5998486958709335,
    ],
};

/// Batch normalisation over whole batches.
pub(crate) const RESNET_UNSPLIT: Case = Case {
    name: "resnet.rdl",
    source: include_str!("../../pytorch/resnet.rdl"),
    losses: [
        2.5499335605499205,
        2.9249675813399736,
        2.6522388149957474,
        2.799345005584277,
        2.957695989453648,
        2.9268903498196375,
        2.5609882637894743,
        2.806309910533432,
        2.7665113445657754,
        2.576987800340954,
    ],
};

/// What [`RESNET_UNSPLIT`] then loses on the batch after, normalised by its running averages.
pub(crate) const RESNET_EVALUATED: f64 = 2.5761722648822376;
