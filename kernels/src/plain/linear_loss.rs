//! Plain loss of a linear classifier with its gradients.

use crate::{
    Real,
    classes::Classes,
    linear_loss::{Arrays, Gradients, LinearCrossEntropy},
    plain::loss::log_sum,
};

/// logits_ik = Σ_l x_il W_kl, lse_i = ln Σ_k exp(logits_ik), loss = Σ share_i (lse_i − logits_i(target))
/// over the rows that count; slopes_ik = (exp(logits_ik − lse_i) − \[k = target\]) · share_i in these
/// and zero in others, dx_il = Σ_k slopes_ik W_kl, dW_kl = Σ_i slopes_ik x_il.
///
/// Logits, and slopes in their place, of row i are in row i mod c of the c that there are.
pub(crate) fn linear_cross_entropy<R: Real>(
    call: &LinearCrossEntropy,
    arrays: Arrays<'_, R>,
) {
    let Arrays { x, weight, targets, weights, logits, lse, loss, mut gradients } = arrays;
    let (classes, depth) = (Classes::whole(call.all), call.depth);
    if let Some(gradients) = &mut gradients {
        gradients.weight.fill(R::ZERO);
    }
    let mut total = 0.0;
    for i in 0..call.rows {
        let row = i * depth..(i + 1) * depth;
        // It may lie where its gradient goes.
        let there = gradients.as_ref().map_or(&[][..], |all| &all.x[row.clone()]);
        let x = x.part(row.clone()).all(there).to_vec();
        let place = i % call.together * call.all.classes;
        let logits = &mut logits[place..place + call.all.classes];
        for (logit, weight) in logits.iter_mut().zip(weight.chunks(depth)) {
            *logit = x.iter().zip(weight).map(|(x, weight)| *x * *weight).sum();
        }
        lse[i] = log_sum(logits);
        let class = classes.place(targets[i]);
        total += class.map_or(0.0, |class| weights.term(i, lse[i] - logits[class]));
        let Some(Gradients { x: dx, weight: dweight }) = &mut gradients else { continue };
        let share = if class.is_some() { weights.share(i) } else { R::ZERO };
        let dx = &mut dx[row];
        dx.fill(R::ZERO);
        for (k, logit) in logits.iter_mut().enumerate() {
            let certain = if class == Some(k) { R::ONE } else { R::ZERO };
            *logit = ((*logit - lse[i]).exp() - certain) * share;
            for l in 0..depth {
                dx[l] += *logit * weight[k * depth + l];
                dweight[k * depth + l] += *logit * x[l];
            }
        }
    }
    *loss = weights.mean(total);
}
