// Package vital holds signs of life: what a loop is at and what keeps it from its
// work. They are written by loops on their way and read by whoever asks how the
// process is doing, at any time and without a lock.
package vital
