"""Part of the benchmark lean.ts: reads vaults the way a simple script with Azure's Python SDK does, one call after the other.

The arguments are the URLs of the vaults. Prints the duration and the processor time of the process as JSON.
"""

import json, os, socket, sys, time, urllib.request

from azure.core.credentials import AccessToken
from azure.keyvault.certificates import CertificateClient
from azure.keyvault.keys import KeyClient
from azure.keyvault.secrets import SecretClient

# The simulated cloud's hosts end with .localhost, which not every resolver maps to this machine.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *arguments, **options: resolve(
    "127.0.0.1" if str(host).endswith(".localhost") else host, *arguments, **options
)


class Identity:
    """Credential that requests a token of the simulated managed identity once and reuses it."""

    def __init__(self):
        self.token = None

    def get_token(self, *scopes, **_):
        if self.token is None:
            resource = scopes[0].removesuffix("/.default")
            url = f"{os.environ['IDENTITY_ENDPOINT']}?api-version=2019-08-01&resource={resource}"
            request = urllib.request.Request(url, headers={"x-identity-header": os.environ["IDENTITY_HEADER"]})
            answer = json.load(urllib.request.urlopen(request))
            self.token = AccessToken(answer["access_token"], int(answer["expires_on"]))
        return self.token


identity = Identity()
started = time.monotonic()
# The check of the challenge's resource fails for the simulated cloud, because it also compares the port.
options = {"connection_verify": os.environ["NODE_EXTRA_CA_CERTS"], "verify_challenge_resource": False}
for vault in sys.argv[1:]:
    keys, certificates = KeyClient(vault, identity, **options), CertificateClient(vault, identity, **options)
    for _ in SecretClient(vault, identity, **options).list_properties_of_secrets():
        pass
    for key in keys.list_properties_of_keys():
        if not key.managed:
            keys.get_key(key.name)
            keys.get_key_rotation_policy(key.name)
    for certificate in certificates.list_properties_of_certificates():
        certificates.get_certificate(certificate.name)
print(json.dumps({"seconds": time.monotonic() - started, "processorMs": time.process_time() * 1000}))
