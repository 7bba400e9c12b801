//! Laws of messages over links, on random links and groups.

use super::*;
use crate::{Domain, Table};
use proptest::prelude::*;

const KINDS: [Collective; 3] =
    [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather];

fn protocol() -> impl Strategy<Value = Protocol> {
    (1u64..500_000_000_000, 0u64..100_000).prop_map(|(bandwidth, startup)| Protocol {
        bandwidth: BytesPerSecond(bandwidth),
        startup: Nanos(startup),
    })
}

fn way() -> impl Strategy<Value = Way> {
    let form = prop_oneof![
        Just(Form::Ring),
        Just(Form::Rails),
        Just(Form::Tree),
        Just(Form::Nested)
    ];
    prop_oneof![
        4 => form.prop_map(Way::Form),
        1 => protocol().prop_map(Way::Short),
        1 => protocol().prop_map(Way::Nvls),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    let ways = proptest::collection::vec(way(), 0..4);
    (protocol(), 0u64..20_000, ways).prop_map(|(long, latency, ways)| {
        let Protocol { bandwidth, startup } = long;
        Link { startup, ways, ..Link::plain("link", bandwidth, Nanos(latency)) }
    })
}

/// Two levels: `inner` members in each of `outer` units.
fn target(links: [Link; 2]) -> Target {
    Target { links: Table::from_iter(links), ..Target::default() }
}

fn span(inner: u64, outer: u64) -> LinkSpan {
    let level = |link, members| Level { link: LinkId::new(link), members };
    LinkSpan { members: inner * outer, levels: vec![level(0, inner), level(1, outer)] }
}

fn times(target: &Target, span: &LinkSpan, whole: u64) -> [Nanos; 3] {
    KINDS.map(|kind| target.collective_time(span, kind, Bytes(whole)))
}

fn no_less(longer: [Nanos; 3], shorter: [Nanos; 3]) -> bool {
    longer.iter().zip(shorter).all(|(longer, shorter)| *longer >= shorter)
}

#[test]
fn a_plain_link_is_a_ring() {
    let plain = Link::plain("bus", BytesPerSecond(100_000_000), Nanos(7));
    let target = target([plain.clone(), plain.clone()]);
    let span = LinkSpan::flat(LinkId::new(0), 4);
    assert_eq!(times(&target, &span, 1_000), [6, 3, 3].map(|r| Nanos(r * (7 + 2_500))));
    assert_eq!(plain.transfer_time(Bytes(50)), Nanos(7 + 500));
    assert_eq!(times(&target, &LinkSpan::flat(LinkId::new(0), 1), 1_000), [Nanos(0); 3]);
}

#[test]
fn all_protocols_of_a_link_change_with_its_bandwidth() {
    let protocol =
        |bandwidth| Protocol { bandwidth: BytesPerSecond(bandwidth), startup: Nanos(3) };
    let form = Way::Form(Form::Tree);
    let with = |long, short, nvls| {
        let ways = vec![form, Way::Short(protocol(short)), Way::Nvls(protocol(nvls))];
        Link { ways, ..Link::plain("link", BytesPerSecond(long), Nanos(7)) }
    };
    let mut link = with(8_000, 2_000, 12_000);
    link.set_bandwidth(BytesPerSecond(2_000));
    assert_eq!(link, with(2_000, 500, 3_000));
    link.set_bandwidth(BytesPerSecond(1));
    assert_eq!(link, with(1, 1, 1));
}

#[test]
fn forms_take_what_their_formula_says() {
    let ways = |form: Form| vec![Way::Form(form)];
    let inner = Link::plain("inner", BytesPerSecond(200_000_000), Nanos(1));
    let outer = Link::plain("outer", BytesPerSecond(50_000_000), Nanos(10));
    let time = |form| {
        let outer = Link { ways: ways(form), startup: Nanos(5), ..outer.clone() };
        let target = target([inner.clone(), outer]);
        target.collective_time(&span(4, 2), Collective::AllReduce, Bytes(8_000))
    };
    // 1,000 bytes each; the four ports of a unit move 200 bytes a microsecond together.
    assert_eq!(time(Form::Ring), Nanos(5 + 14 * (10 + 20_000)));
    assert_eq!(time(Form::Rails), Nanos(5 + 2 * (6 + 10) + 70_000));
    assert_eq!(time(Form::Tree), Nanos(5 + 2 * (2 + 10) + 80_000));
    let phases = 2 * (3 * (1 + 10_000) + (10 + 20_000));
    assert_eq!(time(Form::Nested), Nanos(5 + phases));
    let protocol = Protocol { bandwidth: BytesPerSecond(900_000_000), startup: Nanos(3) };
    let switched = Link { ways: vec![Way::Nvls(protocol)], ..inner.clone() };
    let target = target([switched, outer.clone()]);
    let one = LinkSpan::flat(LinkId::new(0), 8);
    let time = target.collective_time(&one, Collective::AllReduce, Bytes(8_000));
    assert_eq!(time, Nanos(3 + 2 + 10_000));
}

#[test]
fn spans_follow_the_nesting_of_domains() {
    let mut target =
        target([0, 1].map(|k| {
            Link::plain(&format!("link{k}"), BytesPerSecond(1_000 - k), Nanos(k))
        }));
    let link = |k: usize| LinkId::new(k);
    let domain = |k: usize, devices| Domain { link: link(k), devices };
    target.domains = (0..4).map(|node| domain(0, node * 8..node * 8 + 8)).collect();
    target.domains.push(domain(1, 0..32));
    let levels = |devices: &[usize]| {
        let devices: Vec<_> = devices.iter().map(|k| DeviceId::new(*k)).collect();
        let span = target.span(&devices, link(1));
        let levels = span.levels.iter().map(|level| (level.link.index(), level.members));
        (span.members, levels.collect::<Vec<_>>())
    };
    assert_eq!(levels(&[0, 1, 2, 3]), (4, vec![(0, 4)]));
    assert_eq!(levels(&[0, 8, 16]), (3, vec![(1, 3)]));
    assert_eq!(levels(&[0, 1, 8, 9, 24, 25]), (6, vec![(0, 2), (1, 3)]));
    assert_eq!(levels(&[0, 1, 2, 9]), (4, vec![(0, 3), (1, 2)]));
    assert_eq!(levels(&[7]), (1, vec![(1, 1)]));
}

proptest! {
    #[test]
    fn no_time_falls_with_bytes_or_units(
        links in [link(), link()],
        inner in 1u64..9,
        outer in 1u64..70,
        whole in 0u64..1 << 40,
        more in 0u64..1 << 36,
    ) {
        let target = target(links);
        let now = times(&target, &span(inner, outer), whole);
        prop_assert!(no_less(times(&target, &span(inner, outer), whole + more), now));
        // Every round of a ring rounds up to whole bytes and nanoseconds.
        let aligned = whole.next_multiple_of(inner * outer * (outer + 1));
        let few = times(&target, &span(inner, outer), aligned);
        let many = times(&target, &span(inner, outer + 1), aligned);
        let rounding = Nanos(2 * inner * (outer + 1));
        prop_assert!(no_less(many.map(|t| t + rounding), few), "{few:?} {many:?}");
        for link in target.links.values() {
            let [short, long] = [whole, whole + more].map(|b| link.transfer_time(Bytes(b)));
            prop_assert!(short <= long);
        }
    }

    #[test]
    fn a_slower_link_never_takes_less(
        links in [link(), link()],
        shape in (1u64..9, 1u64..70),
        whole in 0u64..1 << 40,
        which in 0usize..2,
        slower in (1u64..8, 0u64..9_000, 0u64..9_000),
    ) {
        let span = span(shape.0, shape.1);
        let target = target(links);
        let mut worse = target.clone();
        let link = &mut worse.links[LinkId::new(which)];
        link.bandwidth = BytesPerSecond((link.bandwidth.0 / slower.0).max(1));
        link.latency += Nanos(slower.1);
        link.startup += Nanos(slower.2);
        prop_assert!(no_less(times(&worse, &span, whole), times(&target, &span, whole)));
    }

    #[test]
    fn no_form_beats_the_ports(
        links in [link(), link()],
        inner in 1u64..9,
        outer in 2u64..70,
        whole in 0u64..1 << 40,
    ) {
        let target = target(links);
        let best = |link: &Link| {
            let protocols = [Some(link.long()), link.short()].into_iter().flatten();
            protocols.map(|protocol| protocol.bandwidth).max().unwrap()
        };
        let [_, last] = [0, 1].map(|k| best(&target.links[LinkId::new(k)]));
        // All but a unit's own share of every sum must come in through its ports.
        let share = (u128::from(whole) * u128::from(outer - 1) / u128::from(outer)) as u64;
        let ports = last * inner;
        for (time, rounds) in times(&target, &span(inner, outer), whole).into_iter().zip([2, 1, 1]) {
            prop_assert!(time >= Bytes(share * rounds).at(ports), "{time}");
        }
    }
}
