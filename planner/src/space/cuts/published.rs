//! The exact cuts against a published partitioner: that of PipeDream (arXiv 1806.03377), which
//! also gives stages replicas of their own. Its golden numbers on public profiles show that it is
//! the published one; with one machine per stage and free messages it must agree with [`cut`].

mod resnet50;

use super::{Chain, InsideUnits, Users, cut};
use roundelay_schedule::{Bytes, Nanos};

/// Forward plus backward in microseconds, bytes of the output, bytes of weights.
type Layer = (u64, u64, u64);

/// Measured by the authors of PipeDream (github.com/msr-fiddle/pipedream, profiles of image
/// classification), without the input.
const VGG16: [Layer; 40] = [
    (46920, 1644167168, 7168),
    (9999, 1644167168, 0),
    (159531, 1644167168, 147712),
    (9766, 1644167168, 0),
    (9374, 411041792, 0),
    (54803, 822083584, 295424),
    (5097, 822083584, 0),
    (75441, 822083584, 590336),
    (5133, 822083584, 0),
    (4999, 205520896, 0),
    (29149, 411041792, 1180672),
    (2757, 411041792, 0),
    (44481, 411041792, 2360320),
    (3103, 411041792, 0),
    (48133, 411041792, 2360320),
    (2870, 411041792, 0),
    (2682, 102760448, 0),
    (23823, 205520896, 4720640),
    (1722, 205520896, 0),
    (37259, 205520896, 9439232),
    (1527, 205520896, 0),
    (40445, 205520896, 9439232),
    (1523, 205520896, 0),
    (1583, 51380224, 0),
    (12989, 51380224, 9439232),
    (1050, 51380224, 0),
    (11466, 51380224, 9439232),
    (653, 51380224, 0),
    (12690, 51380224, 9439232),
    (630, 51380224, 0),
    (787, 12845056, 0),
    (0, 4, 0),
    (0, 12845056, 0),
    (7050, 2097152, 411058176),
    (407, 2097152, 0),
    (0, 2097152, 0),
    (1443, 2097152, 67125248),
    (309, 2097152, 0),
    (0, 2097152, 0),
    (941, 512000, 16388000),
];

const ALEXNET: [Layer; 22] = [
    (28721, 198246400, 93184),
    (1546, 198246400, 0),
    (1904, 47775744, 0),
    (8740, 143327232, 1229568),
    (1335, 143327232, 0),
    (1440, 33226752, 0),
    (9870, 66453504, 2655744),
    (696, 66453504, 0),
    (11620, 44302336, 3539968),
    (727, 44302336, 0),
    (8312, 44302336, 2360320),
    (700, 44302336, 0),
    (697, 9437184, 0),
    (0, 4, 0),
    (0, 9437184, 0),
    (0, 9437184, 0),
    (4809, 4194304, 151011328),
    (510, 4194304, 0),
    (0, 4194304, 0),
    (2441, 4194304, 67125248),
    (326, 4194304, 0),
    (927, 1024000, 16388000),
];

/// Machines and the links between them.
#[derive(Clone, Copy)]
struct Machines {
    count: usize,
    /// The most that share one stage.
    together: usize,
    /// Bytes per second.
    bandwidth: f64,
}

/// The time of the slowest stage or message, and the last stage: where it starts and how many
/// machines share it.
#[derive(Clone, Copy)]
struct Best {
    time: f64,
    start: usize,
    replicas: usize,
}

/// Seconds of the layers `start..end` on this many machines, with the exchange of their weights.
fn stage_time(layers: &[Layer], machines: Machines, replicas: usize) -> f64 {
    let compute = layers.iter().map(|layer| layer.0).sum::<u64>() as f64 / 1e6;
    let weights = layers.iter().map(|layer| layer.2).sum::<u64>() as f64;
    let q = replicas as f64;
    (compute + 4.0 * (q - 1.0) / q * weights / machines.bandwidth) / q
}

/// The best partitions of the first layers on some machines, by layers and machines.
type Table = Vec<Vec<Best>>;

/// The best whose last stage are the layers `start..end` on `replicas` of `count` machines.
fn ending(
    layers: &[Layer],
    machines: Machines,
    table: &Table,
    (start, end): (usize, usize),
    (replicas, count): (usize, usize),
) -> Best {
    let own = stage_time(&layers[start..end], machines, replicas);
    let before = start.checked_sub(1).map_or(0.0, |last| {
        let message = 2.0 * layers[last].1 as f64;
        let message = message / (machines.bandwidth * replicas as f64);
        message.max(table[start][count - replicas].time)
    });
    Best { time: own.max(before), start, replicas }
}

/// The slowest stage or message of the best partition, and its stages: where each ends and its
/// machines.
fn partition(layers: &[Layer], machines: Machines) -> (f64, Vec<(usize, usize)>) {
    let none = Best { time: f64::INFINITY, start: 0, replicas: 0 };
    let mut table = vec![vec![none; machines.count + 1]; layers.len() + 1];
    for (end, count) in
        (1..=layers.len()).flat_map(|end| (1..=machines.count).map(move |m| (end, m)))
    {
        for replicas in 1..=count.min(machines.together) {
            let starts = if replicas == count { 0..1 } else { 1..end };
            for start in starts {
                let found =
                    ending(layers, machines, &table, (start, end), (replicas, count));
                if found.time < table[end][count].time {
                    table[end][count] = found;
                }
            }
        }
    }
    let (mut end, mut left, mut stages) = (layers.len(), machines.count, Vec::new());
    while end > 0 {
        let Best { start, replicas, .. } = table[end][left];
        stages.insert(0, (end, replicas));
        (end, left) = (start, left - replicas);
    }
    (table[layers.len()][machines.count].time, stages)
}

#[test]
fn the_published_partitions() {
    let resnet50 = resnet50::layers();
    for (layers, count, time, ends, replicas) in [
        (&VGG16[..], 4, 0.2055, vec![17, 40], vec![3, 1]),
        (&VGG16, 8, 0.1038, vec![24, 40], vec![7, 1]),
        // The second cut is published as 32; with 31 the slowest stage is the same one.
        (&VGG16, 16, 0.0565, vec![24, 31, 40], vec![13, 2, 1]),
        (&ALEXNET, 4, 0.0342, vec![13, 22], vec![3, 1]),
        // Published without the places of the cuts.
        (&resnet50, 4, 0.1629, vec![94, 176], vec![2, 2]),
        (&resnet50, 16, 0.0478, vec![91, 153, 176], vec![7, 6, 3]),
    ] {
        let machines = Machines { count, together: count, bandwidth: 1e9 };
        let (found, stages) = partition(layers, machines);
        assert!((found - time).abs() < 5e-5, "{count} machines: {found}");
        let (found_ends, found_replicas): (Vec<_>, Vec<_>) = stages.into_iter().unzip();
        assert_eq!((found_ends, found_replicas), (ends, replicas), "{count} machines");
    }
}

#[test]
fn the_cuts_are_those_of_one_machine_per_stage() {
    for layers in [&VGG16[..], &ALEXNET, &resnet50::layers()] {
        let chain = Chain {
            reads: Vec::new(),
            times: layers.iter().map(|layer| Nanos(1000 * layer.0)).collect(),
            crossing: layers.iter().map(|layer| Bytes(layer.1)).collect(),
            ties: Vec::new(),
            users: Users::Together,
            boundaries: Vec::new(),
            inside: InsideUnits::Cut,
        };
        for count in 1..=10 {
            let cuts = cut(&chain, u32::try_from(count).unwrap()).unwrap();
            let longest = chain.stage_times(&cuts).into_iter().max().unwrap();
            let machines = Machines { count, together: 1, bandwidth: f64::INFINITY };
            let (time, _) = partition(layers, machines);
            assert!((longest.0 as f64 / 1e9 - time).abs() < 1e-9, "{count}: {longest}");
        }
    }
}
