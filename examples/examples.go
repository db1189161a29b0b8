// Package examples holds the files that the documents show; tests run them.
package examples

import _ "embed"

//go:embed mesh.yaml
var mesh string

// Mesh returns mesh.yaml, the mesh that the demo starts.
func Mesh() []byte { return []byte(mesh) }
