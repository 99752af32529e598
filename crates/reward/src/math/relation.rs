//! Equations and inequalities.

use super::compare::{Rules, compare};
use super::limits::Budget;
use super::numeric::{Point, factor_between, value};
use super::sets::same_real_set;
use super::tree::{Comparator, Node};

/// A relation chain without the approximations of what is given exactly: `x = 1/3 ≈ 0.33` says `x = 1/3`, and
/// `1/3 ≈ 0.33` says `1/3`.
pub(crate) fn without_approximation(node: &Node) -> Node {
    let Node::Relation { first, rest } = node else { return node.clone() };
    if matches!(rest.first(), Some((Comparator::Approximately, _))) && !names_something(first) {
        return first.as_ref().clone();
    }
    let equal = rest.iter().position(|(comparator, _)| *comparator == Comparator::Equal);
    let approximate = rest.iter().position(|(comparator, _)| *comparator == Comparator::Approximately);
    match (equal, approximate) {
        (Some(equal), Some(approximate)) if equal < approximate => {
            Node::Relation { first: first.clone(), rest: rest[..approximate].to_vec() }
        }
        _ => node.clone(),
    }
}

pub(crate) fn is_equation(node: &Node) -> bool {
    match node {
        Node::Relation { rest, .. } => rest
            .iter()
            .all(|(comparator, _)| matches!(comparator, Comparator::Equal | Comparator::Approximately)),
        _ => false,
    }
}

/// An equation whose left side only names what is on the right: `x = 5`, `f(x) = x^2`, `a/b = 3`.
pub(crate) fn is_assignment(node: &Node) -> bool {
    match node {
        Node::Relation { first, .. } => is_equation(node) && names_something(first),
        _ => false,
    }
}

fn names_something(node: &Node) -> bool {
    match node {
        Node::Symbol(_) | Node::Apply(..) => true,
        Node::Number { .. } | Node::Constant(_) | Node::Percent(_) | Node::Based { .. } => false,
        Node::Function(_, arguments) => arguments.first().is_some_and(names_something),
        other => {
            let parts = other.parts();
            !parts.is_empty() && parts.into_iter().all(names_something)
        }
    }
}

/// What an equation says the value is: its last side, or the first where the last is but a name.
pub(crate) fn value_side(node: &Node) -> Option<&Node> {
    let Node::Relation { first, rest } = node else { return None };
    let (_, last) = rest.last()?;
    let is_name = matches!(last, Node::Symbol(_)) && !names_something(first);
    Some(if is_name { first } else { last })
}

/// Whether two relations say the same.
pub(crate) fn same_relation(
    gold: &Node,
    pred: &Node,
    rules: &Rules,
    budget: &Budget,
) -> (bool, &'static str) {
    let (Node::Relation { first: a, rest: a_rest }, Node::Relation { first: b, rest: b_rest }) = (gold, pred)
    else {
        return (false, "relation");
    };
    if is_assignment(gold)
        && is_assignment(pred)
        && a.key() == b.key()
        && let (Some((_, a)), Some((_, b))) = (a_rest.last(), b_rest.last())
        && compare(a, b, rules, budget).0
    {
        return (true, "equation");
    }
    let gold_chain = assignment_ends(gold).unwrap_or_else(|| gold.clone());
    let pred_chain = assignment_ends(pred).unwrap_or_else(|| pred.clone());
    if same_chain(&gold_chain, &pred_chain, rules, budget)
        || same_chain(&gold_chain, &reversed(&pred_chain), rules, budget)
    {
        return (true, "relation");
    }
    let conditions = !is_equation(gold) && !is_equation(pred);
    let same_set = conditions && same_real_set(gold, pred, budget) == Some(true);
    (same_set || (a_rest.len() == 1 && b_rest.len() == 1 && same_solution(gold, pred, budget)), "relation")
}

/// First and last side of an assignment that goes over several steps.
fn assignment_ends(node: &Node) -> Option<Node> {
    let Node::Relation { first, rest } = node else { return None };
    let (_, last) = rest.last()?;
    (is_assignment(node) && rest.len() > 1)
        .then(|| Node::Relation { first: first.clone(), rest: vec![(Comparator::Equal, last.clone())] })
}

/// `b > a` for `a < b`.
fn reversed(node: &Node) -> Node {
    let Node::Relation { first, rest } = node else { return node.clone() };
    let mut sides: Vec<&Node> =
        std::iter::once(first.as_ref()).chain(rest.iter().map(|(_, side)| side)).collect();
    sides.reverse();
    let comparators = rest.iter().rev().map(|(comparator, _)| comparator.flipped());
    let Some((first, others)) = sides.split_first() else { return node.clone() };
    let rest = comparators.zip(others.iter().map(|side| (*side).clone())).collect();
    Node::Relation { first: Box::new((*first).clone()), rest }
}

/// Side by side, or, for a single relation, one difference of the sides a multiple of the other.
fn same_chain(a: &Node, b: &Node, rules: &Rules, budget: &Budget) -> bool {
    let (Node::Relation { first: a_first, rest: a_rest }, Node::Relation { first: b_first, rest: b_rest }) =
        (a, b)
    else {
        return false;
    };
    let pairs = a_rest.len() == b_rest.len() && a_rest.iter().zip(b_rest).all(|(x, y)| x.0 == y.0);
    let side = |x: &Node, y: &Node| x.key() == y.key() || compare(x, y, rules, budget).0;
    if pairs && side(a_first, b_first) && a_rest.iter().zip(b_rest).all(|(x, y)| side(&x.1, &y.1)) {
        return true;
    }
    let ([(x, a_side)], [(y, b_side)]) = (a_rest.as_slice(), b_rest.as_slice()) else { return false };
    let (left, right) = (Node::difference(a_first, a_side), Node::difference(b_first, b_side));
    let Some(factor) = factor_between(&left, &right, budget) else { return false };
    let needed = if factor < 0.0 { y.flipped() } else { *y };
    *x == needed && !matches!(x, Comparator::Other(_) | Comparator::In) && factor.is_finite()
}

/// Whether two equations, each linear in a common variable, have the same solution for it: `xy = 1` and `y = 1/x`.
fn same_solution(gold: &Node, pred: &Node, budget: &Budget) -> bool {
    let (Some(left), Some(right)) = (difference_of(gold), difference_of(pred)) else { return false };
    let (mut names, mut others) = (Vec::new(), Vec::new());
    left.variables(&mut names);
    right.variables(&mut others);
    names.sort();
    others.sort();
    if names != others || names.len() < 2 || names.len() > 6 {
        return false;
    }
    names.iter().any(|name| {
        let mut agreed = 0;
        for draw in 0..9 {
            match (solution(&left, name, draw, budget), solution(&right, name, draw, budget)) {
                (Some(a), Some(b)) if (a - b).norm() <= 1e-9 * a.norm().max(1e-3) => agreed += 1,
                (Some(_), Some(_)) => return false,
                _ => {}
            }
        }
        agreed >= 5
    })
}

fn difference_of(node: &Node) -> Option<Node> {
    match node {
        Node::Relation { first, rest } => match rest.as_slice() {
            [(Comparator::Equal, side)] => Some(Node::difference(first, side)),
            _ => None,
        },
        _ => None,
    }
}

/// The zero of an expression that is linear in `name`, at a drawn point.
fn solution(node: &Node, name: &str, draw: u64, budget: &Budget) -> Option<num_complex::Complex64> {
    let at = |x: f64| value(node, &mut Point::drawn(draw, budget).with(name, x));
    let (zero, one, three) = (at(0.5)?, at(1.5)?, at(3.5)?);
    let slope = one - zero;
    let bent = (three - zero - 3.0 * slope).norm();
    if bent > 1e-10 * (three.norm() + zero.norm() + 1e-9) || slope.norm() < 1e-9 {
        return None;
    }
    Some(0.5 - zero / slope)
}
