"""What a script with Azure's Python SDK does: one vault after the other, one call after the other. Vault addresses are its arguments."""

import json, os, socket, sys, time, urllib.request

from azure.core.credentials import AccessToken
from azure.keyvault.certificates import CertificateClient
from azure.keyvault.keys import KeyClient
from azure.keyvault.secrets import SecretClient

resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve(
    "127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more
)


class Identity:
    def __init__(self):
        self.known = None

    def get_token(self, *scopes, **_):
        if self.known is None:
            resource = scopes[0].removesuffix("/.default")
            url = f"{os.environ['IDENTITY_ENDPOINT']}?api-version=2019-08-01&resource={resource}"
            request = urllib.request.Request(url, headers={"x-identity-header": os.environ["IDENTITY_HEADER"]})
            answer = json.load(urllib.request.urlopen(request))
            self.known = AccessToken(answer["access_token"], int(answer["expires_on"]))
        return self.known


identity, calls = Identity(), 0
begun = time.monotonic()
# It compares the port, too, which Azure's own addresses have none of.
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
print(json.dumps({"seconds": time.monotonic() - begun, "processorMs": time.process_time() * 1000}))
