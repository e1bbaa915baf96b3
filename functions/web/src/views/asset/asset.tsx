import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { Fragment, type ReactNode } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { assetTitle, titleOfId } from "../../parts/asset-name.ts";
import { Card } from "../../parts/card.tsx";
import { ApiSentence, Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { RENEWERS } from "../../parts/renewers.ts";
import { useParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { View } from "../../parts/view.tsx";
import { Dependencies } from "./dependencies.tsx";
import { KeyRotation } from "./key-rotation.tsx";
import { LatestRotation } from "./latest-rotation.tsx";
import { Notifications } from "./notifications.tsx";
import { ServedAt } from "./served-at.tsx";
import { StatusCard } from "./status-card.tsx";
import { Versions } from "./versions.tsx";
import { Violations } from "./violations.tsx";

type Asset = Schemas["AssetDetails"];

const useStyles = makeStyles({
  head: { display: "flex", flexWrap: "wrap", alignItems: "center", gap: tokens.spacingHorizontalL },
  facts: {
    display: "grid",
    gridTemplateColumns: "minmax(min-content, max-content) minmax(0, 1fr)",
    "@media (max-width: 767px)": { gridTemplateColumns: "minmax(min-content, 35%) minmax(0, 1fr)" },
    columnGap: tokens.spacingHorizontalL,
    rowGap: tokens.spacingVerticalXS,
    margin: 0,
  },
  value: { margin: 0, overflowWrap: "anywhere", unicodeBidi: "isolate" },
});

/**
 * The page of one asset: its problems and the next actions, then its properties, violations, consumers, versions and
 * notifications. Mails and chat messages link to it.
 */
export default function AssetDetails() {
  const { assetId = "" } = useParams();
  const asset = api.useQuery("get", "/api/assets/discovery/assets/{asset_id}", {
    params: { path: { asset_id: assetId } },
  });
  if (asset.data === undefined && asset.error?.status === 404) return <Gone assetId={assetId} />;
  return <QueryResult of={asset}>{(data) => <Found asset={data} />}</QueryResult>;
}

/** An asset that was deleted or replaced, such as an old client secret after its rotation. Links in mails still lead to it. */
function Gone({ assetId }: { assetId: string }) {
  return (
    <View title="Asset not found">
      <Text>
        No scan finds {titleOfId(assetId, "the credential")}. It was deleted or replaced, or it is in a vault that is no
        longer monitored. <Link href={createHref("/inventory")}>Go to the inventory</Link>
      </Text>
      <LatestRotation assetId={assetId} startedRotationId={undefined} />
      <Card title="Notifications">
        <Notifications assetId={assetId} />
      </Card>
    </View>
  );
}

function Found({ asset }: { asset: Asset }) {
  const styles = useStyles();
  const may = useMay();
  return (
    <View title={assetTitle(asset)}>
      <div className={styles.head}>
        <StatusBadge status={asset.status} />
        <ParentLink asset={asset} />
        <Link href={asset.portalUrl} target="_blank" rel="noreferrer">
          Open in the Azure portal
        </Link>
        <Link href={createHref("/inventory")}>Go to the inventory</Link>
      </div>
      <StatusCard asset={asset} />
      {asset.type === "key" && asset.source === "keyVault" && <KeyRotation assetId={asset.id} />}
      <Card title="Properties">
        <dl className={styles.facts}>
          {factsOf(asset).map(([name, value]) => (
            <Fragment key={name}>
              <dt>{name}</dt>
              <dd className={styles.value}>{value}</dd>
            </Fragment>
          ))}
        </dl>
      </Card>
      <div id="violations">
        <Card title="Violations">
          <Violations asset={asset} />
        </Card>
      </div>
      <Card title="Used by">
        {/* Every role may list dependencies, so only the license can be missing. */}
        {may("listDependencies") ? (
          <Dependencies asset={asset} />
        ) : (
          "Shows the resources that use this asset and the effect of a new version on each of them. This feature needs a PRO license."
        )}
      </Card>
      {asset.served !== undefined && (
        <Card title="Served at">
          <ServedAt assetId={asset.id} served={asset.served} />
        </Card>
      )}
      <Card title="Versions">
        {asset.source === "keyVault" ? (
          <Versions asset={asset} />
        ) : (
          "Credentials of applications and B2C tenants have no versions."
        )}
      </Card>
      <Card title="Notifications">
        <Notifications assetId={asset.id} />
      </Card>
    </View>
  );
}

/** The link to the assets or the page of what the asset belongs to: its vault, its application, or its B2C tenant. */
function ParentLink({ asset: { source, vaultName, credential } }: { asset: Asset }) {
  if (vaultName !== null)
    return <Link href={createHref("/inventory", { vault: vaultName })}>All assets in {vaultName}</Link>;
  if (credential === undefined) return null;
  return source === "b2c" ? (
    <Link href={createHref(`/b2c/${credential.tenantId}`)}>
      B2C tenant {credential.tenantDomain ?? credential.tenantId}
    </Link>
  ) : (
    <Link href={createHref(`/rotation/apps/${credential.appId ?? ""}`)}>
      Application {isolated(credential.applicationName)}
    </Link>
  );
}

/** Why totals and the score leave an asset out. `notSeen` and `noLicense` apply only to credentials outside key vaults. */
const NOT_COUNTED: Record<NonNullable<Asset["notCounted"]>, string> = {
  outOfScope: "The subscription is no longer monitored",
  notSeen: "Not seen for 7 days",
  noLicense: "Needs a PRO license",
};

/**
 * Returns the kind of object that a credential outside key vaults belongs to, as the label of that object's name. The ID of a
 * B2C credential is `b2c.<tenant>.<kind>.<name>`, that of an Entra credential `entra.<tenant>.<application>.<key>`.
 */
function parentLabel({ id }: Asset): string {
  const [source, , kind] = id.split(".");
  if (source !== "b2c" || kind === "application") return "Application";
  return kind === "policykey" ? "Policy key" : "Identity provider";
}

// biome-ignore-start lint/correctness/useJsxKeyInIterable: each fact has its name as the key.
/** Returns the properties of an asset as pairs of label and value. Properties without a value are left out. */
function factsOf(asset: Asset): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ["Status", <ApiSentence text={asset.statusReason} />],
    ["Type", asset.credential?.appId !== undefined && asset.type === "secret" ? "client secret" : asset.type],
    ["Vault", asset.vaultName],
    ["Subscription", [asset.subscriptionName, asset.subscriptionId].filter(Boolean).join(", ")],
    [parentLabel(asset), asset.credential?.applicationName],
    ["Not included in totals and score", asset.notCounted && NOT_COUNTED[asset.notCounted]],
    ["Expires", asset.expiresOn === null ? "Never" : <Instant at={asset.expiresOn} />],
    ["Valid from", asset.notBefore && <Instant at={asset.notBefore} />],
    ["Enabled", asset.enabled ? "Yes" : "No"],
    ["Owner", asset.owner],
    ["Current version", asset.version],
    ["Created", asset.createdOn && <Instant at={asset.createdOn} />],
    ["Last modified", asset.updatedOn && <Instant at={asset.updatedOn} />],
    ["Content type", asset.contentType],
    // The name of a curve contains its size.
    [
      asset.keyCurve == null && asset.keySize == null ? "Key type" : "Key type and size",
      [asset.keyType, asset.keyCurve ?? asset.keySize].filter(Boolean).join(" "),
    ],
    ["Subject", asset.subject],
    ["Issuer", asset.issuer],
    ["Subject alternative names", asset.subjectAlternativeNames?.join(", ")],
    ["Thumbprint", asset.thumbprint],
    [
      "Renewal by the vault's policy",
      asset.autoRenew == null ? null : asset.autoRenew ? "Configured" : "Not configured",
    ],
    ["Renewed by", asset.renewal && RENEWERS[asset.renewal.renewedBy]],
    [
      asset.renewal?.late ? "Renewal late since" : "Renewal due by",
      asset.renewal?.windowEnd && <Instant at={asset.renewal.windowEnd} />,
    ],
    ["Last renewed", asset.renewal?.lastRenewals[0] && <Instant at={asset.renewal.lastRenewals[0]} />],
    [
      "Tags",
      Object.entries(asset.tags)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["First found by a scan", <Instant at={asset.firstSeenAt} />],
    ["Last found by a scan", <Instant at={asset.lastSeenAt} />],
  ];
  return facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
}
// biome-ignore-end lint/correctness/useJsxKeyInIterable: see above.
