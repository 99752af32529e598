//! Sets of real numbers: which numbers belong to an interval, a union or the solutions of a relation.

use super::limits::Budget;
use super::numeric::{Point, real_value};
use super::tree::{Comparator, Constant, Joint, Node};

/// Numbers this close to an end are the end.
const TOUCH: f64 = 1e-9;

/// Whether two nodes describe the same set of real numbers: each a set, or a condition on one variable. They are
/// asked at all ends, beside them, between them, and on a grid of whole and other numbers. `None` if one of them is
/// no such set.
pub(crate) fn same_real_set(a: &Node, b: &Node, budget: &Budget) -> Option<bool> {
    let (a_variable, b_variable) = (variable(a)?, variable(b)?);
    if a_variable.is_some() && b_variable.is_some() && a_variable != b_variable {
        return None;
    }
    let mut points = Vec::new();
    ends(a, budget, &mut points);
    ends(b, budget, &mut points);
    points.retain(|point| point.is_finite());
    points.sort_by(f64::total_cmp);
    points.dedup();
    if points.len() > 100 {
        return None;
    }
    let mut asked = points.clone();
    asked.extend(points.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0));
    for point in &points {
        let step = 1e-6 * point.abs().max(1.0);
        asked.extend([point - step, point + step, -point]);
    }
    asked.extend((-40..=40).map(f64::from));
    asked.extend((-60..=60).map(|k| f64::from(k) * 0.3717));
    asked.extend([-1e6, -1234.5, -99.7, 99.7, 1234.5, 1e6]);
    for x in asked {
        if contains(a, a_variable.as_deref(), x, budget)? != contains(b, b_variable.as_deref(), x, budget)? {
            return Some(false);
        }
    }
    Some(true)
}

/// The one variable of a condition, `Some(None)` for a set without any; `None` if there are several.
fn variable(node: &Node) -> Option<Option<String>> {
    let mut names = Vec::new();
    node.variables(&mut names);
    match names.len() {
        0 => Some(None),
        1 => Some(names.pop()),
        _ => None,
    }
}

/// Values of the parts of a node that have one: ends of intervals, elements, sides of relations.
fn ends(node: &Node, budget: &Budget, found: &mut Vec<f64>) {
    if found.len() > 100 {
        return;
    }
    match node {
        Node::Tuple(_)
        | Node::Bracketed { .. }
        | Node::Set(_)
        | Node::Union(_)
        | Node::Intersection(_)
        | Node::Difference(..)
        | Node::List { .. }
        | Node::Relation { .. }
        | Node::Member(..)
        | Node::Where(_) => node.parts().into_iter().for_each(|part| ends(part, budget, found)),
        other => {
            if let Some(end) = real_value(other, &mut Point::drawn(0, budget)) {
                let mut names = Vec::new();
                other.variables(&mut names);
                if names.is_empty() {
                    found.push(end);
                }
            }
        }
    }
}

/// Whether `x` belongs; `None` if the node is no set.
fn contains(node: &Node, variable: Option<&str>, x: f64, budget: &Budget) -> Option<bool> {
    budget.spend(1)?;
    let inner = |part: &Node| contains(part, variable, x, budget);
    match node {
        Node::Reals => Some(true),
        Node::Set(items) => {
            for item in items {
                if (real_value(item, &mut point(variable, x, budget))? - x).abs() <= TOUCH * x.abs().max(1.0)
                {
                    return Some(true);
                }
            }
            Some(false)
        }
        Node::Tuple(items) => interval(items, false, false, x, budget),
        Node::Bracketed { open, close, items } => interval(items, *open == '[', *close == ']', x, budget),
        Node::Union(parts) => parts.iter().try_fold(false, |any, part| Some(any | inner(part)?)),
        Node::Intersection(parts) => parts.iter().try_fold(true, |all, part| Some(all & inner(part)?)),
        Node::Difference(left, right) => Some(inner(left)? && !inner(right)?),
        Node::Member(_, set) => contains(set, None, x, budget),
        Node::Where(condition) => inner(condition),
        // "x < 1 or x > 2" is a union, "x > 1 and x < 2" an intersection.
        Node::List { items, joint } if items.iter().all(|item| matches!(item, Node::Relation { .. })) => {
            let all = *joint == Joint::And;
            items.iter().try_fold(all, |so_far, item| {
                let belongs = inner(item)?;
                Some(if all { so_far && belongs } else { so_far || belongs })
            })
        }
        Node::Relation { first, rest } => {
            variable?;
            let mut left = real_value(first, &mut point(variable, x, budget));
            for (comparator, side) in rest {
                let right = real_value(side, &mut point(variable, x, budget));
                let unbounded = |node: &Node| matches!(node, Node::Constant(Constant::Infinity));
                let holds = match (left, right) {
                    (Some(left), Some(right)) => compare(left, *comparator, right)?,
                    _ if unbounded(side) || unbounded(first) => true,
                    _ => false,
                };
                if !holds {
                    return Some(false);
                }
                left = right;
            }
            Some(true)
        }
        _ => None,
    }
}

fn point<'a>(variable: Option<&str>, x: f64, budget: &'a Budget) -> Point<'a> {
    match variable {
        Some(name) => Point::drawn(0, budget).with(name, x),
        None => Point::drawn(0, budget),
    }
}

fn interval(items: &[Node], left_closed: bool, right_closed: bool, x: f64, budget: &Budget) -> Option<bool> {
    let [left, right] = items else { return None };
    let (left, right) = (end(left, budget)?, end(right, budget)?);
    let slack = TOUCH * x.abs().max(1.0);
    if (x - left).abs() <= slack {
        return Some(left_closed && left <= right);
    }
    if (x - right).abs() <= slack {
        return Some(right_closed && left <= right);
    }
    Some(left < x && x < right)
}

fn end(node: &Node, budget: &Budget) -> Option<f64> {
    match node {
        Node::Constant(Constant::Infinity) => Some(f64::INFINITY),
        Node::Negative(inner) if matches!(inner.as_ref(), Node::Constant(Constant::Infinity)) => {
            Some(f64::NEG_INFINITY)
        }
        other => {
            let mut names = Vec::new();
            other.variables(&mut names);
            if names.is_empty() { real_value(other, &mut Point::drawn(0, budget)) } else { None }
        }
    }
}

fn compare(left: f64, comparator: Comparator, right: f64) -> Option<bool> {
    let touches = (left - right).abs() <= TOUCH * left.abs().max(right.abs()).max(1.0);
    Some(match comparator {
        Comparator::Equal | Comparator::Approximately => touches,
        Comparator::NotEqual => !touches,
        Comparator::Less => left < right && !touches,
        Comparator::LessEqual => left < right || touches,
        Comparator::Greater => left > right && !touches,
        Comparator::GreaterEqual => left > right || touches,
        Comparator::In | Comparator::Other(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_STEPS;
    use crate::math::parser::parse;

    fn same(a: &str, b: &str) -> Option<bool> {
        same_real_set(&parse(a).unwrap(), &parse(b).unwrap(), &Budget::new(MAX_STEPS))
    }

    #[test]
    fn a_condition_and_its_solutions_are_the_same_set() {
        for (a, b) in [
            (r"|x|>1", r"(-\infty,-1)\cup(1,\infty)"),
            (r"1\le|z|\le\frac32", r"[-\frac32,-1]\cup[1,\frac32]"),
            (r"x^2<4", "(-2,2)"),
            (r"0<f(x)<1", "(0,1)"),
            (r"x\ne 3", r"\mathbb{R}\setminus\{3\}"),
            (r"x<-1 \text{ or } x>1", r"|x|>1"),
            (r"\{x \mid x>3\}", r"(3,\infty)"),
            (r"[0,2]\cup[1,3]", "[0,3]"),
        ] {
            assert_eq!(same(a, b), Some(true), "{a} {b}");
        }
    }

    #[test]
    fn an_end_more_or_less_is_another_set() {
        for (a, b) in [
            (r"|x|\ge1", r"(-\infty,-1)\cup(1,\infty)"),
            (r"x^2<4", "[-2,2]"),
            (r"x\ne 3", r"\mathbb{R}"),
            ("x>3", "(3,4)"),
            ("[0,1]", "[0,1.00001]"),
            (r"(-\infty,1)\cup(1,\infty)", r"(-\infty,\infty)"),
        ] {
            assert_eq!(same(a, b), Some(false), "{a} {b}");
        }
        assert_eq!(same("x>3", "y>3"), None);
    }
}
