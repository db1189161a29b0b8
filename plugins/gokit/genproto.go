//go:build never

package gokit

// Go kit v0.13.0 requires a google.golang.org/genproto from before it was split,
// and applications would find each of its packages twice. go.mod keeps a later
// version for as long as something imports it.
import _ "google.golang.org/genproto/googleapis/type/date"
