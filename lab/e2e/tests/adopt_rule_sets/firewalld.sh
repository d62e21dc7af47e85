# Has firewalld write its rules into the network namespace that this runs in, over a bus of its own, and ends it so that
# they stay.
set -e
mount --make-rprivate /
mount -t tmpfs none /run
mkdir /run/dbus /run/settings && cp -a /etc/firewalld/. /run/settings && mount --bind /run/settings /etc/firewalld
firewall-offline-cmd --zone=internal --change-interface=eth0
firewall-offline-cmd --zone=external --change-interface=eth1
firewall-offline-cmd --new-policy=out
firewall-offline-cmd --policy=out --add-ingress-zone=internal
firewall-offline-cmd --policy=out --add-egress-zone=external
firewall-offline-cmd --policy=out --set-target=ACCEPT
firewall-offline-cmd --zone=external --add-forward-port=port=8080:proto=tcp:toport=8000:toaddr=10.0.1.2
cat > /run/bus.conf <<X
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<policy context="default"><allow send_destination="*"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy>
</busconfig>
X
dbus-daemon --config-file=/run/bus.conf --nofork --nopidfile & bus=$!
sleep 1
firewalld --nofork --nopid & daemon=$!
for i in $(seq 60); do
    sleep 1
    if firewall-cmd --state; then break; fi
done
nft list table inet firewalld | grep -q filter_FWD_external
kill -KILL $daemon
kill $bus
