package emulator

import "time"

// remembered is the answer that belongs to a key.
type remembered struct {
	digest digest
	at     time.Time
	answer answer
}

// keyring remembers keys for a while, in the order in which they came. It
// belongs to the server's lock.
type keyring struct {
	byKey map[string]remembered
	order []string
}

// find returns what is remembered of a key.
func (k *keyring) find(key string, window time.Duration, now time.Time) (remembered, bool) {
	k.forget(window, now)
	r, found := k.byKey[key]
	return r, found
}

// add remembers a key that is not there. Beyond most keys the oldest goes.
func (k *keyring) add(key string, r remembered, most int) {
	if k.byKey == nil {
		k.byKey = map[string]remembered{}
	}
	k.byKey[key] = r
	k.order = append(k.order, key)
	for len(k.order) > most {
		k.drop()
	}
}

// forget drops what is older than the window.
func (k *keyring) forget(window time.Duration, now time.Time) {
	for len(k.order) > 0 && now.Sub(k.byKey[k.order[0]].at) >= window {
		k.drop()
	}
}

func (k *keyring) drop() {
	delete(k.byKey, k.order[0])
	k.order[0] = ""
	k.order = k.order[1:]
}
