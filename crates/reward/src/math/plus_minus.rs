//! What `±` stands for: two answers, of which `∓` takes the other sign.

use super::tree::{Joint, Node};

/// `node` with every item that holds `±` replaced by its two readings.
pub(crate) fn expanded(node: &Node) -> Node {
    match node {
        Node::List { items, joint } => Node::List { items: each(items), joint: *joint },
        Node::Set(items) => Node::Set(each(items)),
        other => {
            let mut readings = readings(other);
            if readings.len() == 1 {
                readings.remove(0)
            } else {
                Node::List { items: readings, joint: Joint::Unsaid }
            }
        }
    }
}

fn each(items: &[Node]) -> Vec<Node> {
    items.iter().flat_map(readings).collect()
}

fn readings(item: &Node) -> Vec<Node> {
    if !item.any(&|part| matches!(part, Node::PlusMinus { .. })) {
        return vec![item.clone()];
    }
    vec![read(item, true), read(item, false)]
}

fn read(node: &Node, upper: bool) -> Node {
    if let Node::PlusMinus { left, right, flipped } = node {
        let right = read(right, upper);
        let term = if upper == *flipped { Node::Negative(Box::new(right)) } else { right };
        return match left {
            Some(left) => Node::Sum(vec![read(left, upper), term]),
            None => term,
        };
    }
    node.with_parts(&mut |part| read(part, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::parser::parse;

    #[test]
    fn both_signs_are_read_and_the_other_sign_follows() {
        let keys = |text: &str| expanded(&parse(text).unwrap()).key();
        assert_eq!(keys(r"\pm 2"), "list(2,-(2))");
        assert_eq!(keys(r"1 \pm 2"), "list(+(1,2),+(-(2),1))");
        assert_eq!(keys(r"\{\pm 2, 3\}"), "set(-(2),2,3)");
        assert_eq!(keys(r"(\pm 1, \mp 1)"), "list(()(1,-(1)),()(-(1),1))");
    }
}
