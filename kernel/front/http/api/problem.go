package api

// Failure is the body of every answer that is none of 2xx.
type Failure struct {
	Error Problem `json:"error"`
}

// Problem says what is wrong and what to do.
type Problem struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// RetrySeconds is when asking again makes sense, as in the header Retry-After; 0
	// when it makes none.
	RetrySeconds int `json:"retrySeconds,omitempty"`
}

// Error is the message: what, where and what to do.
func (p *Problem) Error() string { return p.Message }

// Code is what a program tells problems apart by.
type Code string

// The codes, with the status that each comes with.
const (
	CodeInvalid      Code = "invalid"       // 400: a field is unknown, missing or has no such value
	CodeToken        Code = "token"         // 401: no token, or none that is known
	CodeCaller       Code = "caller"        // 403: this user may not use the server
	CodeOrigin       Code = "origin"        // 403: the request may come from a page in a browser
	CodeDirectory    Code = "directory"     // 403: the directory is outside of the caller's roots
	CodeWider        Code = "wider"         // 403: wider than what the operator has set
	CodeNotFound     Code = "not found"     // 404: no such path, or no such session of the caller's
	CodeMethod       Code = "method"        // 405
	CodeOverlap      Code = "overlap"       // 409: another session has that directory, or one around or beneath it
	CodeTooLarge     Code = "too large"     // 413
	CodeMediaType    Code = "media type"    // 415: the body is not application/json
	CodeTooMany      Code = "too many"      // 429: the caller has as much under way as it may
	CodeHost         Code = "host"          // 500: this host cannot build the jail, or keep the record
	CodeBusy         Code = "busy"          // 503: the server has as much under way as it may
	CodeShuttingDown Code = "shutting down" // 503
)
