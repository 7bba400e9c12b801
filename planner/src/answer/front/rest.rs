//! The plans that may still belong to a front, in the order of each of its numbers. They are many:
//! only one that comes first is compared with what was found.

use super::Point;
use crate::search::Open;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Plans, least first in step time, in memory and in devices.
pub(super) struct Rest {
    /// Those that were taken or are beaten are gone.
    plans: Vec<Option<Open>>,
    /// Places of plans by each number first, and of some that are gone.
    orders: [BinaryHeap<Reverse<(Point, usize)>>; 3],
}

impl Rest {
    pub(super) fn new(plans: Vec<Open>) -> Self {
        let order = |aspect| {
            let entry =
                |(place, open): (usize, &Open)| Reverse((turned(open, aspect), place));
            plans.iter().enumerate().map(entry).collect()
        };
        let orders = [0, 1, 2].map(order);
        Self { plans: plans.into_iter().map(Some).collect(), orders }
    }

    /// The first plan by one of the numbers that is not beaten.
    pub(super) fn first(
        &mut self,
        aspect: usize,
        is_beaten: impl Fn(&Open) -> bool,
    ) -> Option<Open> {
        while let Some(Reverse((_, place))) = self.orders[aspect].peek() {
            let plan = &mut self.plans[*place];
            *plan = plan.filter(|open| !is_beaten(open));
            if plan.is_some() {
                return *plan;
            }
            self.orders[aspect].pop();
        }
        None
    }

    /// Takes plans from the front that are as wanted.
    pub(super) fn take(
        &mut self,
        (aspect, most): (usize, usize),
        wanted: impl Fn(&Open) -> bool,
        is_beaten: impl Fn(&Open) -> bool,
    ) -> Vec<Open> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(open) = self.first(aspect, &is_beaten).filter(&wanted)
            && let Some(Reverse((_, place))) = self.orders[aspect].pop()
        {
            self.plans[place] = None;
            taken.push(open);
        }
        taken
    }

    /// Gives back a plan whose bounds are sharper.
    pub(super) fn give_back(&mut self, open: Open) {
        for (aspect, order) in self.orders.iter_mut().enumerate() {
            order.push(Reverse((turned(&open, aspect), self.plans.len())));
        }
        self.plans.push(Some(open));
    }

    /// How many plans are left that are not beaten.
    pub(super) fn left(self, is_beaten: impl Fn(&Open) -> bool) -> usize {
        self.plans.iter().flatten().filter(|open| !is_beaten(open)).count()
    }
}

/// What a plan takes at best, one of the numbers first.
fn turned(open: &Open, aspect: usize) -> Point {
    let mut point = open.point();
    point.rotate_left(aspect);
    point
}
