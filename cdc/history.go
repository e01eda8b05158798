package cdc

import "go.uber.org/zap"

// noticeRestore says that the server's WAL ends before a position that it has
// sent to an earlier session, which no crash brings about: the server sends what
// it has flushed. An older state of it was put back. That is only told: what the
// tables have without outcome goes out, whatever was before. It is noticed only
// while the server has not written as much again.
func (s *Source) noticeRestore(here identity) {
	last := s.current.Load()
	if last == nil || last == s.rewound || last.server.system != here.system || last.server.timeline != here.timeline {
		return
	}
	confirmed := lsn(last.confirmed.Load())
	if here.flushed == 0 || here.flushed >= confirmed {
		return
	}
	s.rewound = last
	s.log.Error("server has gone back in time",
		zap.Stringer(fieldLSN, here.flushed), zap.Stringer(fieldConfirmed, confirmed),
		zap.String(fieldReason, "its WAL ends before what was confirmed: an older backup was put back"),
		zap.String(fieldHint, "what waited in the backup is sent, what was sent after it is not in the tables any more"))
}
