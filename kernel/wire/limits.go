package wire

import "time"

// Bounds of the wire. All lengths are bytes unless said otherwise.
const (
	MaxToWorker   = 64 << 20  // one line, launcher to worker
	MaxFromWorker = 16 << 20  // one line, worker to launcher
	MaxRich       = 8 << 20   // rich results and figures of one reply
	MaxTraceback  = 256 << 10 // one traceback
	MaxDepth      = 64        // nesting of one message
	MaxAudit      = 10000     // declared entries of one reply
	MaxObserved   = 10000     // observed entries of one reply
	MaxBackground = 256       // background records of one reply
	MaxReprs      = 64        // rich results of one reply
	MaxFigures    = 64        // figures of one reply
	MaxMIME       = 32        // representations of one rich result
	MaxNames      = 4096      // skills, skill errors, reload answers; fields of an object of no fixed shape
	MaxKept       = 4096      // statements that define something, of one reply
	MaxName       = 4096      // one name, scope or key
	MaxNumber     = 4300      // one number: as many digits as CPython reads (sys.int_info, since 3.11)
	MaxHostCalls  = 64        // host calls of one cell that are carried out at once
	MaxUnread     = 1024      // answers to host calls that a worker has not read
	MaxUnreadData = 32 << 20  // bytes of them, beyond the first
)

// smallBuffer is what an idle connection keeps for reading.
const smallBuffer = 4 << 10

// WriteTime is how long a worker may leave a request, and what stands before it,
// unread before its wire is given up.
const WriteTime = 2 * time.Second
