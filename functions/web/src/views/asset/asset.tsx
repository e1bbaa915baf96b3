import { Link, makeStyles, tokens } from "@fluentui/react-components";
import { Fragment, type ReactNode } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { View } from "../../parts/view.tsx";
import { Dependencies } from "./dependencies.tsx";
import { Notifications } from "./notifications.tsx";
import { Versions } from "./versions.tsx";
import { Violations } from "./violations.tsx";

type Asset = Schemas["AssetDetails"];

const useStyles = makeStyles({
  head: { display: "flex", flexWrap: "wrap", alignItems: "center", gap: tokens.spacingHorizontalL },
  facts: {
    display: "grid",
    gridTemplateColumns: "minmax(min-content, max-content) minmax(0, 1fr)",
    columnGap: tokens.spacingHorizontalL,
    rowGap: tokens.spacingVerticalXS,
    margin: 0,
  },
  value: { margin: 0, overflowWrap: "anywhere", unicodeBidi: "isolate" },
});

/** One asset: properties, violations, consumers, versions and notifications. */
export default function AssetDetails() {
  const styles = useStyles();
  const may = useMay();
  const { assetId = "" } = useParams();
  const asset = api.useQuery("get", "/api/assets/discovery/assets/{asset_id}", {
    params: { path: { asset_id: assetId } },
  });
  return (
    <QueryResult of={asset}>
      {(data) => (
        <View title={data.credential?.displayName ?? data.name}>
          <div className={styles.head}>
            <StatusBadge status={data.status} />
            <Link href={data.portalUrl} target="_blank" rel="noreferrer">
              Open in the Azure portal
            </Link>
            {data.vaultName !== null && (
              <Link href={createHref("/inventory", { vault: data.vaultName })}>All assets in {data.vaultName}</Link>
            )}
            <Link href={createHref("/inventory")}>Go to the inventory</Link>
          </div>
          <Card title="Properties">
            <dl className={styles.facts}>
              {factsOf(data).map(([name, value]) => (
                <Fragment key={name}>
                  <dt>{name}</dt>
                  <dd className={styles.value}>{value}</dd>
                </Fragment>
              ))}
            </dl>
          </Card>
          <Card title="Violations">
            <Violations asset={data} />
          </Card>
          <Card title="Used by">
            {may("listDependencies") ? (
              <Dependencies asset={data} />
            ) : (
              "Shows the resources that use this asset and how a new version affects each of them. This feature needs a PRO license."
            )}
          </Card>
          <Card title="Versions">
            {data.source === "keyVault" ? <Versions asset={data} /> : "Application credentials have no versions."}
          </Card>
          <Card title="Notifications">
            <Notifications asset={data} />
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

const NOT_COUNTED: Record<NonNullable<Asset["notCounted"]>, string> = {
  outOfScope: "Its subscription is no longer monitored",
  notSeen: "Not seen for 7 days",
  noLicense: "Needs a PRO license",
};

// biome-ignore-start lint/correctness/useJsxKeyInIterable: each fact has its name as the key.
function factsOf(asset: Asset): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ["Type", asset.type],
    ["Vault", asset.vaultName],
    ["Subscription", [asset.subscriptionName, asset.subscriptionId].filter(Boolean).join(", ")],
    ["Application", asset.credential?.applicationName],
    ["Excluded from totals", asset.notCounted && NOT_COUNTED[asset.notCounted]],
    ["Expires", asset.expiresOn === null ? "Never" : <Instant at={asset.expiresOn} />],
    ["Valid from", asset.notBefore && <Instant at={asset.notBefore} />],
    ["Enabled", asset.enabled ? "Yes" : "No"],
    ["Owner", asset.owner],
    ["Version", asset.version],
    ["Created", asset.createdOn && <Instant at={asset.createdOn} />],
    ["Last modified", asset.updatedOn && <Instant at={asset.updatedOn} />],
    ["Content type", asset.contentType],
    ["Key", [asset.keyType, asset.keySize, asset.keyCurve].filter(Boolean).join(" ")],
    ["Subject", asset.subject],
    ["Issuer", asset.issuer],
    ["Subject alternative names", asset.subjectAlternativeNames?.join(", ")],
    ["Thumbprint", asset.thumbprint],
    ["Auto-renewal", asset.autoRenew == null ? null : asset.autoRenew ? "Yes" : "No"],
    [
      "Tags",
      Object.entries(asset.tags)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["First seen", <Instant at={asset.firstSeenAt} />],
    ["Last seen", <Instant at={asset.lastSeenAt} />],
  ];
  return facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
}
// biome-ignore-end lint/correctness/useJsxKeyInIterable: see above.
