//go:build never

package gokit

// Go kit v0.13.0 requires a google.golang.org/genproto from before that module was split. With
// it, applications would find each package in two modules. go.mod keeps a later version as long
// as something imports it.
import _ "google.golang.org/genproto/googleapis/type/date"
