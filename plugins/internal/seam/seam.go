// Package seam restricts functions that package client exports only for the registries' packages.
package seam

// Key is a parameter of these functions. Code outside this module's plugins cannot name it.
type Key struct{}
