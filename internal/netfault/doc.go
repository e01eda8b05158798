// Package netfault is a TCP proxy for tests that misbehaves when told to: it
// freezes, cuts, resets, delays and refuses connections.
//
//	proxy, err := netfault.New("127.0.0.1:5432")
//	...
//	proxy.Freeze() // both sides stay connected, no byte moves
//	proxy.Thaw()   // all that was held back arrives
//	proxy.Cut()    // every connection ends; new ones are accepted
//
// It listens on the loopback interface only.
package netfault
