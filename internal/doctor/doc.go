// Package doctor looks for what keeps a relay from doing its work, and says how
// to repair it.
//
// A check is a small value: what it is called, which checks it needs, and a
// function that looks. Checks change nothing: no slot, no probe message. They
// run one after another, in an order in which the first that fails is the first
// to mend; a check that needs one that failed is skipped with that reason.
//
// Numbers such as D09 are stable: scripts, alerts and pages may name them.
package doctor
