"""The ten tasks of every generated client, in Python. Prints one line for each task; the part `clients` compares the lines."""

import os

from lifecycle import AuthenticatedClient, Client
from lifecycle.api.alerts import create_alert_rule, delete_alert_rule, get_alert_rule, update_alert_rule
from lifecycle.api.authentication import get_me
from lifecycle.api.compliance import get_compliance_score, report_violations
from lifecycle.api.discovery import export_assets, get_asset, list_assets
from lifecycle.api.settings import get_logging_settings, update_logging_settings
from lifecycle.models import AlertRuleChange, AlertRuleWithSecret, AssetDetails, AssetList, ComplianceScore, Credentials
from lifecycle.models import ListAssetsSort, ListAssetsType, LoggingChanges, LoggingChangesLogLevel, NewAlertRule
from lifecycle.models import NewAlertRuleAlertType, Problem, SignedIn
from lifecycle.types import UNSET, File

service = os.environ["SERVICE"]

# 1. Sign in. The module sign_in of openapi-python-client 0.29.1 can't be imported: it lacks an import, because the operation
# accepts a form in addition to JSON. The models and the HTTP client work.
credentials = Credentials(username=os.environ["CLIENT_USERNAME"], password=os.environ["CLIENT_PASSWORD"])
answer = Client(base_url=service).get_httpx_client().post("/auth/login", json=credentials.to_dict())
assert answer.status_code == 200, answer.text
signed_in = SignedIn.from_dict(answer.json())
api = AuthenticatedClient(base_url=service, token=signed_in.access_token)
me = get_me.sync(client=api)
assert me is not None and not isinstance(me, Problem)
print("sign in:", me.username, me.role.value)

# 2. Read a list page by page.
assets = []
cursor: str | None = None
pages = 0
while pages == 0 or cursor is not None:
    page = list_assets.sync(client=api, limit=2, cursor=cursor or UNSET)
    assert isinstance(page, AssetList) and page.limit == 2
    assets += page.items
    cursor = page.next_cursor
    pages += 1
print("read a list by pages:", len(assets), "assets,", pages, "pages")

# 3. Filter a list by an enumeration, a boolean and an order.
filtered = list_assets.sync(
    client=api, type_=ListAssetsType.SECRET, enabled=True, out_of_scope=False, sort=ListAssetsSort.NAME
)
assert isinstance(filtered, AssetList)
assert all(asset.type_.value == "secret" and asset.enabled for asset in filtered.items)
print("filter a list:", len(filtered.items), "enabled secrets")

# 4. Read one resource, and a trend of a number of days.
asset = get_asset.sync(assets[0].id, client=api)
score = get_compliance_score.sync(client=api, history=30)
assert isinstance(asset, AssetDetails) and isinstance(score, ComplianceScore) and score.history
print("read one asset and the score:", asset.id, asset.status.value, len(score.history))

# 5. Create.
created = create_alert_rule.sync_detailed(
    client=api,
    body=NewAlertRule(
        name="Conformance Python",
        alert_type=NewAlertRuleAlertType.EXPIRATION,
        threshold_days=30,
        recipients=["a@b.example"],
        enabled=False,
    ),
)
rule = created.parsed
assert isinstance(rule, AlertRuleWithSecret)
print("create a rule:", created.status_code.value, rule.name, str(rule.enabled).lower())


# 6. Change with an ETag, and again with the outdated one.
def change(days: int):
    return update_alert_rule.sync(
        rule.id, client=api, body=AlertRuleChange(threshold_days=days), if_match=rule.etag
    )


changed = change(14)
outdated = change(7)
assert isinstance(changed, AlertRuleWithSecret) and isinstance(outdated, Problem)
print("change it with an ETag:", changed.threshold_days, outdated.status, outdated.code.value)

# 7. Delete.
deleted = delete_alert_rule.sync(rule.id, client=api, if_match=changed.etag)
gone = get_alert_rule.sync(rule.id, client=api)
assert deleted is not None and not isinstance(deleted, Problem) and isinstance(gone, Problem)
print("delete it:", str(deleted.deleted).lower(), gone.status, gone.code.value)

# 8. Dry run: the change is previewed, and the setting stays.
preview = update_logging_settings.sync_detailed(
    client=api, body=LoggingChanges(log_level=LoggingChangesLogLevel.ERROR), preview=True
)
logging = get_logging_settings.sync_detailed(client=api)
assert isinstance(preview.parsed, list) and isinstance(logging.parsed, list) and logging.parsed
assert [setting.to_dict() for setting in preview.parsed] == [setting.to_dict() for setting in logging.parsed]
print("preview a change:", preview.status_code.value, logging.status_code.value)

# 9. Export files.
csv = export_assets.sync(client=api)
pdf = report_violations.sync(client=api)
assert isinstance(csv, str) and isinstance(pdf, File)
content = pdf.payload.read()
assert len(content) > 2000
print("export files:", len(csv.strip().split("\r\n")), content[:4].decode())

# 10. Errors are problem documents.
unknown = get_asset.sync("kv-none.secret.none", client=api)
invalid = list_assets.sync(client=api, limit=0)
assert isinstance(unknown, Problem) and isinstance(invalid, Problem) and invalid.errors
print("handle errors:", unknown.code.value, invalid.code.value, invalid.errors[0].path)
