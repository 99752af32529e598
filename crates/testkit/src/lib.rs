//! Checks for plug-in authors: golden numbers, finite differences, contract checks
