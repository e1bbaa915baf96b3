"""
A SAML identity provider made with pysaml2, one action a run. Reads {action, folder, …} as JSON on standard input, prints JSON.
The folder keeps the provider's key and the service's metadata between the actions. `query` is the query of a request by
HTTP-Redirect. `validate` and `request` exit with an error if the message is not valid.

  metadata                                   the provider's metadata
  validate    {xml, schema}                  validates a message ("protocol") or metadata ("metadata") against the schema
  request     {query}                        verifies an AuthnRequest that came by HTTP-Redirect
  respond     {query, attributes, sign, …}   answers it with a SAMLResponse for the person `uma`
  logout      {query}                        verifies a LogoutRequest, and answers it by HTTP-Redirect
  startLogout {sessionIndexes}               returns the address of a LogoutRequest, for HTTP-Redirect
"""

import datetime
import json
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT, metadata, saml
from saml2.authn_context import PASSWORDPROTECTEDTRANSPORT
from saml2.config import IdPConfig
from saml2.server import Server
from saml2.xml.schema import XMLSchemaError, _create_xml_schema_validator, validate
from saml2.xmldsig import DIGEST_SHA256, SIG_RSA_SHA256

ENTITY_ID = "https://idp.example/metadata"

given = json.load(sys.stdin)
folder = pathlib.Path(given["folder"])
key_file, certificate_file = folder / "idp.key", folder / "idp.pem"
service_metadata = folder / "service.xml"


def make_key():
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "idp.example")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_format = serialization.PrivateFormat.TraditionalOpenSSL
    key_file.write_bytes(key.private_bytes(pem, key_format, serialization.NoEncryption()))
    certificate_file.write_bytes(certificate.public_bytes(pem))


def configuration():
    if not key_file.exists():
        make_key()
    return IdPConfig().load(
        {
            "entityid": ENTITY_ID,
            "xmlsec_binary": given["xmlsec1"],
            "key_file": str(key_file),
            "cert_file": str(certificate_file),
            "metadata": {"local": [str(service_metadata)] if service_metadata.exists() else []},
            "service": {
                "idp": {
                    "endpoints": {
                        "single_sign_on_service": [("https://idp.example/sso", BINDING_HTTP_REDIRECT)],
                        "single_logout_service": [("https://idp.example/slo", BINDING_HTTP_REDIRECT)],
                    },
                    "name_id_format": [saml.NAMEID_FORMAT_PERSISTENT],
                    "want_authn_requests_signed": True,
                    "policy": {"default": {"lifetime": {"minutes": 5}}},
                }
            },
        }
    )


def service_entity_id(idp):
    return next(iter(idp.metadata.service_providers()))


def name_id(idp):
    return saml.NameID(
        format=saml.NAMEID_FORMAT_PERSISTENT,
        name_qualifier=ENTITY_ID,
        sp_name_qualifier=service_entity_id(idp),
        text="uma-at-pysaml2",
    )


def authn_request(idp):
    query = given["query"]
    return idp.parse_authn_request(
        query["SAMLRequest"], BINDING_HTTP_REDIRECT, query.get("RelayState"), query.get("SigAlg"), query.get("Signature")
    )


def redirect(idp, message, response, relay_state=""):
    sent = idp.apply_binding(
        BINDING_HTTP_REDIRECT,
        str(message),
        message.destination,
        relay_state,
        response=response,
        sign=True,
        sigalg=SIG_RSA_SHA256,
    )
    return dict(sent["headers"])["Location"]


def act(action):
    """Runs an action of the list above, and returns what it prints."""
    if action == "validate":
        schema = pathlib.Path(saml.__file__).parent / f"data/schemas/saml-schema-{given['schema']}-2.0.xsd"
        try:
            validate(given["xml"], _create_xml_schema_validator(source=str(schema)))
        except XMLSchemaError as error:
            # Without the document, which the exception's text starts with.
            sys.exit(" ".join(error.args[0]["error"].split()))
        return "valid"
    if action == "metadata":
        return str(metadata.entity_descriptor(configuration()))
    idp = Server(config=configuration())
    if action == "request":
        message = authn_request(idp).message
        return {"issuer": message.issuer.text, "acs": message.assertion_consumer_service_url}
    if action == "respond":
        request = authn_request(idp)
        arguments = idp.response_args(request.message, [BINDING_HTTP_POST])
        del arguments["binding"]
        response = idp.create_authn_response(
            given["attributes"],
            name_id=name_id(idp),
            authn={"class_ref": PASSWORDPROTECTEDTRANSPORT, "authn_auth": ENTITY_ID},
            sign_assertion="assertion" in given["sign"],
            sign_response="response" in given["sign"],
            encrypt_assertion=given["encrypt"],
            sign_alg=given.get("algorithm", SIG_RSA_SHA256),
            digest_alg=DIGEST_SHA256,
            **arguments,
        )
        return str(response)
    if action == "logout":
        query = given["query"]
        request = idp.parse_logout_request(
            query["SAMLRequest"], BINDING_HTTP_REDIRECT, query.get("RelayState"), query["SigAlg"], query["Signature"]
        )
        same = request.message.name_id.text == name_id(idp).text
        response = idp.create_logout_response(request.message, [BINDING_HTTP_REDIRECT], sign=False)
        return {"same": same, "location": redirect(idp, response, True, query.get("RelayState", ""))}
    if action == "startLogout":
        binding, destination = idp.pick_binding(
            "single_logout_service", [BINDING_HTTP_REDIRECT], "spsso", entity_id=service_entity_id(idp)
        )
        _, request = idp.create_logout_request(
            destination,
            service_entity_id(idp),
            name_id=name_id(idp),
            session_indexes=given["sessionIndexes"],
            expire=(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
            sign=False,
        )
        return redirect(idp, request, False)
    raise ValueError(action)


print(json.dumps(act(given["action"])))
