// Package harness starts what the integration tests need and ends it with the
// test: a real ZooKeeper, the real istiod, a real Java Dubbo application, the
// bridge itself, and proxies that break connections. Everything listens on
// free ports of 127.0.0.1 and writes into directories of the test alone; where a
// test fails, the last lines of every program it started are printed.
//
// What has to be installed scripts/install.sh installs.
package harness
