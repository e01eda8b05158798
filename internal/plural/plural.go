// Package plural makes words agree with numbers, in texts for people.
package plural

import "fmt"

type number interface {
	~int | ~int64 | ~uint64
}

// Of is a number of things: "1 message", "2 messages".
func Of[N number](n N, one, many string) string {
	return fmt.Sprintf("%d %s", n, Agree(n, one, many))
}

// Agree is the word that agrees with a number.
func Agree[N number](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
