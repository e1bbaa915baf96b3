"""Part of the benchmark lean.ts: runs the command of the security scanner Prowler with all its Key Vault checks and reports.

Changes only the addresses that Prowler calls, so that it reads the simulated cloud. Prints the measurements as JSON.
"""

import contextlib, functools, json, os, socket, sys, tempfile, time

# The simulated cloud's hosts end with .localhost, which not every resolver maps to this machine.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *arguments, **options: resolve(
    "127.0.0.1" if str(host).endswith(".localhost") else host, *arguments, **options
)
os.environ["REQUESTS_CA_BUNDLE"] = os.environ["NODE_EXTRA_CA_CERTS"]

import azure.keyvault.keys

# The check of the challenge's resource fails for the simulated cloud, because it also compares the port.
azure.keyvault.keys.KeyClient = functools.partial(azure.keyvault.keys.KeyClient, verify_challenge_resource=False)

# Prowler imports these modules while it runs. They are imported here so that their loading is not part of the measured time.
import azure.mgmt.keyvault.v2023_07_01, azure.mgmt.monitor.v2020_10_01, azure.mgmt.monitor.v2021_05_01_preview
import prowler.__main__ as command
import prowler.providers.azure.lib.service.service
from prowler.config.config import prowler_version
from prowler.providers.azure.lib.regions import regions

regions.AZURE_GENERIC_CLOUD = os.environ["AZURE_RESOURCE_MANAGER_ENDPOINT"]
init_provider, execute_checks = command.Provider.init_global_provider, command.execute_checks
# `seconds` and `processorMs` first hold the values at the start. The end of this file replaces them by the differences.
measured = {"version": prowler_version}


def start_clock_and_init_provider(*arguments):
    """Starts the measurement right before Prowler's first call."""
    measured.update(seconds=time.monotonic(), processorMs=time.process_time() * 1000)
    init_provider(*arguments)


def execute_checks_and_measure(*arguments):
    findings = execute_checks(*arguments)
    measured.update(checkedSeconds=time.monotonic() - measured["seconds"], findings=len(findings))
    return findings


command.Provider.init_global_provider = start_clock_and_init_provider
command.execute_checks = execute_checks_and_measure
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
    sys.argv[1:] = ["azure", "--managed-identity-auth", "--service", "keyvault", "--output-directory", folder]
    with contextlib.suppress(SystemExit):
        command.prowler()
measured["seconds"] = time.monotonic() - measured["seconds"]
measured["processorMs"] = time.process_time() * 1000 - measured["processorMs"]
print(json.dumps(measured))
