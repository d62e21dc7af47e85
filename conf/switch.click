// A switch of two interfaces and the host, which is behind a port of its own. What ifconfig says of a veb(4) is said to it
// while it runs.
//   artery run conf/switch.click --device eth0=veth1 --device eth1=veth2 -u /run/artery.sock
//   artery handler -u /run/artery.sock veb0.show
//   artery handler -u /run/artery.sock veb0.ifconfig 'protected eth0 1 protected eth1 1'
define($LEFT eth0, $RIGHT eth1);

// The host's address in the network of the switch.
define($HOST_IP 192.168.7.1/24, $HOST_ETHER 02:00:00:00:07:01);

// How many addresses are known at most, and seconds after which they are forgotten.
define($MAXADDR 4096, $TIMEOUT 240);

veb0 :: Veb(PORT $LEFT, PORT $RIGHT, PORT vport0 vport, MAXADDR $MAXADDR, TIMEOUT $TIMEOUT);

// The host's view of an interface would be a second way for the same frames: it is hidden.
FromDevice($LEFT, SNIFFER false, PROMISC true) -> veb0 -> ToDevice($LEFT);
FromDevice($RIGHT, SNIFFER false, PROMISC true) -> [1] veb0 [1] -> ToDevice($RIGHT);
FromHost(vport0, $HOST_IP, ETHER $HOST_ETHER) -> [2] veb0 [2] -> ToHost(vport0);
