# Has Shorewall write its rules into the network namespace that this runs in.
set -e
mount --make-rprivate /
mount -t tmpfs none /run && mount -t tmpfs none /var/lib/shorewall
mkdir /run/lock /run/settings && cd /run/settings
sed 's/^AUTOHELPERS=.*/AUTOHELPERS=Yes/; s/^CLAMPMSS=.*/CLAMPMSS=Yes/' /etc/shorewall/shorewall.conf > shorewall.conf
printf 'fw firewall\nnet ipv4\nloc ipv4\n' > zones
printf '?FORMAT 2\nnet eth1 tcpflags,nosmurfs\nloc eth0 tcpflags,nosmurfs\n' > interfaces
printf 'loc net ACCEPT\n$FW all ACCEPT\nnet all DROP info\nall all REJECT info\n' > policy
printf 'MASQUERADE 10.0.0.0/8 eth1\n' > snat
printf '?SECTION NEW\nInvalid(DROP) net all tcp\nPing(ACCEPT) loc $FW\nPing(ACCEPT) net $FW\n' > rules
: > stoppedrules
shorewall start /run/settings
