//go:build race

package relaybin

const raceEnabled = true
