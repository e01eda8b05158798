// Package pagetest has the tests of the page for people in a real browser: a relay
// that runs, a database, a queue, and Chromium before them.
package pagetest
