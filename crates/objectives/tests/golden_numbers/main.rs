//! Golden numbers of other implementations: every record of every fixture, and the page that says how close each objective comes.
//! See `../golden/README.md` for where they come from.

#[cfg(test)]
mod advantages;
#[cfg(test)]
mod corrections;
#[cfg(test)]
mod kl;
#[cfg(test)]
mod page;
#[cfg(test)]
mod prefix;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trl_losses;
#[cfg(test)]
mod verl_losses;
