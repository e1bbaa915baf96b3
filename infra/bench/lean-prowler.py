"""Prowler's own command with all its checks of Key Vault, its reports included. Only where it calls is changed, so that it finds the stand-in cloud."""

import contextlib, functools, json, os, socket, sys, tempfile, time

resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve(
    "127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more
)
os.environ["REQUESTS_CA_BUNDLE"] = os.environ["NODE_EXTRA_CA_CERTS"]

import azure.keyvault.keys

# It compares the port, too, which Azure's own addresses have none of.
azure.keyvault.keys.KeyClient = functools.partial(azure.keyvault.keys.KeyClient, verify_challenge_resource=False)

# What the command loads on its way is loaded before the time counts.
import azure.mgmt.keyvault.v2023_07_01, azure.mgmt.monitor.v2020_10_01, azure.mgmt.monitor.v2021_05_01_preview
import prowler.__main__ as command
import prowler.providers.azure.lib.service.service
from prowler.config.config import prowler_version
from prowler.providers.azure.lib.regions import regions

regions.AZURE_GENERIC_CLOUD = os.environ["AZURE_RESOURCE_MANAGER_ENDPOINT"]
read, check = command.Provider.init_global_provider, command.execute_checks
measured = {"version": prowler_version}


def reads(*arguments):
    measured.update(seconds=time.monotonic(), processorMs=time.process_time() * 1000)
    read(*arguments)


def checks(*arguments):
    findings = check(*arguments)
    measured.update(checkedSeconds=time.monotonic() - measured["seconds"], findings=len(findings))
    return findings


command.Provider.init_global_provider, command.execute_checks = reads, checks
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
    sys.argv[1:] = ["azure", "--managed-identity-auth", "--service", "keyvault", "--output-directory", folder]
    with contextlib.suppress(SystemExit):
        command.prowler()
measured["seconds"] = time.monotonic() - measured["seconds"]
measured["processorMs"] = time.process_time() * 1000 - measured["processorMs"]
print(json.dumps(measured))
