"""Every kind of store and connection: two hosts share one limit, and errors are reported by name."""
import pytest

from faults import Keeper
from fleet import Fleet, rule
from gateway import wait_until
from ports import free_port
from stores import Authority, Cluster, Folder, Sentinels, Server

RULES = rule("k", 5, "1d", "strict", policy="closed") + rule("loose", 5, "1d", "strict", policy="open")
PATIENT = "deadline: 3s"


@pytest.fixture
def keep():
    with Keeper() as keeper:
        yield keeper


def shared(keep, url, *options):
    """Two hosts, one limit: five of twenty pass."""
    fleet = keep.enter(Fleet(RULES, url, 2, workers=1, options=(PATIENT, *options)))
    load = fleet.load("k", count=20, keys=1, clients=2).run()
    assert load.statuses() == {200: 5, 429: 15}, [host.log_text() for host in fleet.hosts]
    assert {record.host for record in load.records} == {0, 1}
    return fleet


def away(keep, url, *options):
    """The store cannot be used: closed denies, open lets pass. Returns the log of one of the hosts."""
    fleet = keep.enter(Fleet(RULES, url, 2, workers=1, options=("deadline: 50ms", *options)))
    assert fleet.load("k", count=20, keys=1, clients=2).run().statuses() == {503: 20}
    assert fleet.load("loose", count=20, keys=1, clients=2).run().statuses() == {200: 20}
    return fleet.hosts[0].log_text()


def test_a_password(keep):
    server = keep(Server(password="open-sesame")).start()
    shared(keep, server.url)
    assert server.do("EXISTS", "weir:k:0") == 1


def test_a_wrong_password_is_named(keep):
    server = keep(Server(password="open-sesame")).start()
    output = away(keep, f"redis://:wrong-sesame@127.0.0.1:{server.port}")
    assert "WEIR_ESTOREAUTH" in output or "refuses user, password or certificate" in output
    assert "wrong-sesame" not in output and "open-sesame" not in output


def test_a_password_that_is_changed_in_its_file(keep):
    server = keep(Server(password="open-sesame")).start()
    file = keep(Folder()).path / "password"
    file.write_text("old-sesame\n")
    fleet = keep.enter(Fleet(RULES, f"redis://127.0.0.1:{server.port}", 1, workers=1,
                             options=(PATIENT, f"password_file: {file}")))
    assert fleet.load("k", count=3, keys=1, clients=1).run().statuses() == {503: 3}
    file.write_text("open-sesame\n")
    wait_until(lambda: 200 in fleet.load("k", count=1, keys=1, clients=1).run().statuses(), "the new password", every=0.3)
    fleet.hosts[0].wait_for_log("reloaded")


def test_a_user_with_few_permissions(keep):
    server = keep(Server("user default off", "user weir on >s3:cret/@ ~weir:* &* +@all -@dangerous -@admin")).start(wait=False)
    wait_until(lambda: "Ready to accept" in server.log(), "the server")
    shared(keep, f"redis://weir:s3%3Acret%2F%40@127.0.0.1:{server.port}")


def test_a_database_and_a_prefix(keep):
    server = keep(Server()).start()
    shared(keep, server.url + "/3", "prefix: mine")
    with server.connect() as client:
        client.do("SELECT", 3)
        assert set(client.do("KEYS", "*")) - {b"mine::hosts"} == {b"mine:k:0"}  # agents tell who they are, after a while


def test_a_unix_socket(keep):
    server = Server()
    path = server.folder / "socket"
    server.config.write_text(server.config.read_text() + f"unixsocket {path}\nunixsocketperm 777\n")
    server.folder.chmod(0o755)
    keep(server).start()
    shared(keep, f"redis+unix://{path}")


def test_tls(keep):
    where = keep(Folder()).path
    authority = Authority(where)
    server = keep(Server(tls=(authority, authority.sign("server")), where=where)).start()
    shared(keep, server.url, f"ca: {authority.ca}")


def test_tls_with_certificates_of_clients(keep):
    where = keep(Folder()).path
    authority = Authority(where)
    server = Server("tls-auth-clients yes", tls=(authority, authority.sign("server")), where=where)
    keep(server).start(wait=False)
    wait_until(lambda: "Ready to accept" in server.log(), "the server")
    certificate, key = authority.sign("client")
    shared(keep, server.url, f"ca: {authority.ca}", f"certificate: {certificate}", f"key: {key}")


def test_another_authority_is_not_believed(keep):
    where = keep(Folder()).path
    authority, other = Authority(where), Authority(where, "other")
    server = keep(Server(tls=(authority, authority.sign("server")), where=where)).start()
    away(keep, server.url, f"ca: {other.ca}")


def test_a_name_that_is_not_in_the_certificate_is_not_believed(keep):
    where = keep(Folder()).path
    authority = Authority(where)
    server = keep(Server(tls=(authority, authority.sign("server", "DNS:elsewhere.example")), where=where)).start()
    away(keep, server.url, f"ca: {authority.ca}")
    shared(keep, server.url, f"ca: {authority.ca}", "server_name: elsewhere.example")


def test_tls_where_there_is_none(keep):
    server = keep(Server()).start()
    away(keep, f"rediss://127.0.0.1:{server.port}")


def test_sentinels(keep):
    shared(keep, keep(Sentinels()).start().url)


def test_sentinels_that_do_not_know_the_master(keep):
    sentinels = keep(Sentinels()).start()
    away(keep, sentinels.url.replace("mymaster", "another"))


def test_a_cluster(keep):
    cluster = keep(Cluster()).start()
    shared(keep, cluster.url)


def test_a_cluster_that_is_taken_for_one_server(keep):
    cluster = keep(Cluster()).start()
    other = next(server for server in cluster.masters() if "MOVED" in str(server.do("GET", "weir:k:0")))
    fleet = keep.enter(Fleet(RULES, other.url, 1, workers=1, options=("deadline: 50ms",)))
    assert fleet.load("k", count=5, keys=1, clients=1).run().statuses() == {503: 5}
    wait_until(lambda: "redis+cluster" in fleet.hosts[0].log_text(), "the reason in the log")


def test_the_store_starts_later(keep):
    port = free_port()
    fleet = keep.enter(Fleet(RULES, f"redis://127.0.0.1:{port}", 2, workers=1))
    assert fleet.load("loose", count=20, keys=1, clients=2).run().statuses() == {200: 20}
    server = keep(Server(port=port)).start()
    wait_until(lambda: fleet.load("k", count=1, keys=1).run().statuses() == {200: 1}, "the store's answer")
    assert server.do("EXISTS", "weir:k:0") == 1


def test_something_else_listens_there(keep):
    fleet_api = keep.enter(Fleet(rule("k", 5, "1d", "local"), "redis://127.0.0.1:1", 1, workers=1))
    away(keep, f"redis://127.0.0.1:{fleet_api.hosts[0].port}")
