// Package systemd tells systemd how a service of Type=notify is doing.
//
// The protocol is one datagram of NAME=value lines to the socket that systemd
// names in the environment, see sd_notify(3). Nobody answers, and a service that
// runs without systemd has nobody to tell.
package systemd
