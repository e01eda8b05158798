// Package infraiadmin asks the Infrai queue what operators ask it: to create
// queues, what a call looks like, how full a queue is, and what became of the
// deliveries of a webhook. Publishing is none of its business; that is
// relay/infrai.
//
// One [Client] serves one verb. It reads the API key again for every request, so
// a rotated key needs no restart, sends it to the address of the settings alone,
// and follows no redirect. Answers are read up to a limit, and every request ends
// by its timeout. No error holds the key, and of the queue's own texts only the
// code, unless INFRAI_ERROR_TEXT asks for more.
//
// An [Error] is decided by what should happen next: its [Error.Hint] says that.
//
// Much about the queue's answers is not documented. What is read from them is
// optional wherever that is so: a field that is missing is told as unknown.
package infraiadmin
