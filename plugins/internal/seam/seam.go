// Package seam marks what package client exports for the packages of registries alone.
package seam

// Key is a parameter of such functions, which nobody else can name.
type Key struct{}
