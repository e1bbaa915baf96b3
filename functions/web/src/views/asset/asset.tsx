import { Link, makeStyles, tokens } from "@fluentui/react-components";
import { Fragment, type ReactNode } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { Instant } from "../../parts/instant.tsx";
import { useParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { View } from "../../parts/view.tsx";
import { Dependencies } from "./dependencies.tsx";
import { Tellings } from "./tellings.tsx";
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

/** All that is known of one asset. */
export default function AssetDetails() {
  const styles = useStyles();
  const may = useMay();
  const { assetId = "" } = useParams();
  const asset = api.useQuery("get", "/api/assets/discovery/assets/{asset_id}", {
    params: { path: { asset_id: assetId } },
  });
  return (
    <Answer of={asset}>
      {(data) => (
        <View title={data.credential?.displayName ?? data.name}>
          <div className={styles.head}>
            <StatusBadge status={data.status} />
            <Link href={data.portalUrl} target="_blank" rel="noreferrer">
              Open in the Azure portal
            </Link>
            {data.vaultName !== null && (
              <Link href={createHref("/inventory", { vault: data.vaultName })}>All of {data.vaultName}</Link>
            )}
            <Link href={createHref("/inventory")}>To the inventory</Link>
          </div>
          <Card title="Facts">
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
          <Card title="Who uses it">
            {may("listDependencies") ? (
              <Dependencies asset={data} />
            ) : (
              "Which resources use it, and what a new version does to each. This needs a PRO licence."
            )}
          </Card>
          <Card title="Versions">
            {data.source === "keyVault" ? <Versions asset={data} /> : "A directory's credential has no versions."}
          </Card>
          <Card title="Alerts that told of it">
            <Tellings asset={data} />
          </Card>
        </View>
      )}
    </Answer>
  );
}

const NOT_COUNTED: Record<NonNullable<Asset["notCounted"]>, string> = {
  outOfScope: "its subscription is not watched any more",
  notSeen: "it was not seen for 7 days",
  noLicense: "there is no PRO licence",
};

// biome-ignore-start lint/correctness/useJsxKeyInIterable: each is drawn under its own name.
function factsOf(asset: Asset): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ["Type", asset.type],
    ["Vault", asset.vaultName],
    ["Subscription", [asset.subscriptionName, asset.subscriptionId].filter(Boolean).join(", ")],
    ["Application", asset.credential?.applicationName],
    ["Not counted", asset.notCounted && NOT_COUNTED[asset.notCounted]],
    ["Ends", asset.expiresOn === null ? "never" : <Instant at={asset.expiresOn} />],
    ["Valid from", asset.notBefore && <Instant at={asset.notBefore} />],
    ["Enabled", asset.enabled ? "yes" : "no"],
    ["Owner", asset.owner],
    ["Version", asset.version],
    ["Made", asset.createdOn && <Instant at={asset.createdOn} />],
    ["Changed", asset.updatedOn && <Instant at={asset.updatedOn} />],
    ["Content type", asset.contentType],
    ["Key", [asset.keyType, asset.keySize, asset.keyCurve].filter(Boolean).join(" ")],
    ["Subject", asset.subject],
    ["Issuer", asset.issuer],
    ["Also for", asset.subjectAlternativeNames?.join(", ")],
    ["Thumbprint", asset.thumbprint],
    ["Renews by itself", asset.autoRenew == null ? null : asset.autoRenew ? "yes" : "no"],
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
