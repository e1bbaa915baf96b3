import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { Card } from "../../parts/card.tsx";
import {
  consumerTitle,
  evidenceText,
  isCredential,
  isNameless,
  REFRESH_MEANINGS,
  REFRESHES,
  SOURCES,
} from "../../parts/dependency-texts.ts";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { Expiry, Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { RotateAsset } from "../../parts/rotate-asset.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Graph } from "./graph.tsx";
import { Usage } from "./usage.tsx";

type Radius = Schemas["BlastRadius"];

/** The page of one asset's blast radius: its consumers and the effect of a rotation on each, as a graph and as a list. */
export default function BlastRadius() {
  const { assetId = "" } = useParams();
  return (
    <FeatureGate
      operation="getBlastRadius"
      description="Shows the consumers of this asset and the effect of a rotation on each of them."
    >
      <LicensedBlastRadius assetId={assetId} />
    </FeatureGate>
  );
}

/** The content of the page. Rendered, and its data loaded, only if the role and the license allow it. */
function LicensedBlastRadius({ assetId }: { assetId: string }) {
  const radius = api.useQuery("get", "/api/assets/dependencies/blast-radius/{secret_id}", {
    params: { path: { secret_id: assetId } },
  });
  if (radius.data === undefined && radius.error?.status === 404) return <NotFound assetId={assetId} />;
  return (
    <QueryResult of={radius}>
      {(data) => (
        <View title={`Blast radius of ${titleWithType(data)}`}>
          {data.incompleteReason === "undetectable" ? <Undetectable radius={data} /> : <Detected radius={data} />}
        </View>
      )}
    </QueryResult>
  );
}

/** The view of an asset that no scan found. It shows the ID from the address, because no name is known. */
const NotFound = ({ assetId }: { assetId: string }) => (
  <View title="Asset not found">
    <Text>
      The address names the asset ID “{isolated(assetId)}”, but no scan found an asset with this ID. The address is
      wrong, the asset was deleted or replaced, or it is in a vault that is not monitored.{" "}
      <Link href={createHref("/inventory")}>Search the inventory</Link>
    </Text>
  </View>
);

/** The content for an asset whose consumers no source can find. It has no score and no list of gaps, which would
 * suggest that the service searched for consumers. */
const Undetectable = ({ radius: { secret, coverage } }: { radius: Radius }) => (
  <>
    <Text>
      {coverage.items.map(({ message, remedy }) => `${message} ${remedy}`).join(" ")} <DetailsLink assetId={secret} />
    </Text>
    {hasSignIns(secret) && (
      <Card title="Last sign-in">
        <Usage assetId={secret} />
      </Card>
    )}
  </>
);

/** Returns whether the asset is a credential of an application, which signs in with it. */
const hasSignIns = (assetId: string) =>
  isCredential(assetId) && (assetId.startsWith("entra.") || assetId.split(".")[2] === "application");

const DetailsLink = ({ assetId }: { assetId: string }) => (
  <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>Asset details</Link>
);

/** Only secrets have a value to replace. The service can't create secrets in B2C tenants. */
const isRotatable = ({ id, kind }: Radius["nodes"][number]): boolean => kind === "secret" && !id.startsWith("b2c.");

function Detected({ radius }: { radius: Radius }) {
  const asset = radius.nodes.find(({ id }) => id === radius.secret);
  return (
    <>
      <Text>
        Impact score of a rotation: <Score radius={radius} /> {/* More consumers exist than the service counts. */}
        {radius.more && "At least "}
        {consumerCounts(radius)}. <Expires assetId={radius.secret} /> <DetailsLink assetId={radius.secret} />
      </Text>
      {asset && isRotatable(asset) && <RotateAsset assetId={asset.id} name={asset.name} />}
      {radius.edges.length > 0 && (
        <Card title="Graph">
          <Graph nodes={radius.nodes} edges={radius.edges} />
          {/* The graph contains only the 100 consumers with the highest weight. */}
          {radius.leftOut > 0 && (
            <Text>
              {radius.leftOut === 1
                ? "1 more consumer is not drawn."
                : `${radius.leftOut.toLocaleString()} more consumers are not drawn.`}
            </Text>
          )}
        </Card>
      )}
      <Card title="Score factors">
        <Factors radius={radius} />
      </Card>
      <Card title="Consumers">
        <Consumers radius={radius} />
      </Card>
      <Card title={isCredential(radius.secret) ? "Last sign-in" : "Reads in logs"}>
        <Usage assetId={radius.secret} />
      </Card>
      <Card title="Could not be searched for consumers">
        <Gaps coverage={radius.coverage} />
      </Card>
    </>
  );
}

/** When the asset expires, which says whether a rotation is due. Empty while unknown. */
function Expires({ assetId }: { assetId: string }) {
  const { data } = api.useQuery("get", "/api/assets/discovery/assets/{asset_id}", {
    params: { path: { asset_id: assetId } },
  });
  if (data === undefined) return null;
  return (
    <>
      Expires: <Expiry at={data.expiresOn} />.
    </>
  );
}

/** The score as a sentence. If consumers may be missing, it is a lower bound, and before a complete search a 0 says nothing. */
function Score({ radius: { score, incomplete, incompleteReason } }: { radius: Radius }) {
  if (score === 0 && incompleteReason === "neverSearched")
    return "unknown, because no discovery of dependencies has read all resources yet.";
  return (
    <>
      {incomplete ? `at least ${score}` : <strong>{score}</strong>} of 100. The score is higher the more consumers a
      rotation affects{incomplete && "; consumers in resources that could not be searched are missing"}.
    </>
  );
}

/** Returns the type and name of the asset, with the vault's name or the application's name. */
function titleWithType({ secret, nodes }: Radius): string {
  const asset = nodes.find(({ id }) => id === secret);
  if (asset === undefined) return secret;
  return `${asset.kind} ${titleOfId(secret, asset.name)}`;
}

/**
 * Returns the numbers of consumers with a known use of the asset (confirmed) and with mere access to it (possible). The list of
 * consumers can be shorter than these numbers, because the API limits it.
 */
function consumerCounts({ drivers }: Radius): string {
  const countOf = (name: "consumers" | "entitled") => drivers.find(({ driver }) => driver === name)?.count ?? 0;
  return `${counted(countOf("consumers"), "confirmed consumer")}, ${counted(countOf("entitled"), "possible consumer")}`;
}

/** The factors of the score (`drivers` in the API), largest first. `points`: how much lower the score would be without the driver. */
function Factors({ radius: { drivers } }: { radius: Radius }) {
  if (drivers.length === 0) return <Text>No score factors, because no consumers were found.</Text>;
  return (
    <>
      <Text size={200}>
        Each consumer gets a weight, which is higher in production and if the consumer needs an update. The sum of the
        weights is converted to a score from 0 to 100. Several factors can count the same consumer.
      </Text>
      <ul>
        {drivers.map(({ driver, message, points }) => (
          <li key={driver}>
            {message} (without this, the score would be {counted(points, "point")} lower)
          </li>
        ))}
      </ul>
    </>
  );
}

/**
 * The list of consumers. Without consumers, says which discovery found none. `lastFullAt` is null until a
 * discovery has read all resources.
 */
function Consumers({ radius: { consumers, coverage } }: { radius: Radius }) {
  if (consumers.length === 0)
    return (
      <Text>
        {coverage.lastFullAt === null ? (
          <>
            No consumers found. No discovery of dependencies has read all resources yet. To start one, go to{" "}
            <Link href={createHref("/dependencies")}>Discover dependencies</Link>.
          </>
        ) : (
          <>
            No consumers found in the last complete discovery (<Instant at={coverage.lastFullAt} relative />
            ).
          </>
        )}{" "}
        Consumers outside the monitored resources aren't detected.
      </Text>
    );
  return (
    <>
      <Text size={200}>
        Confirmed consumer: its configuration references the asset, or a log shows that it read the asset. Possible
        consumer: it has permission to read the asset, but no use was found.
      </Text>
      <Effects of={consumers} />
      <ConsumerList consumers={consumers.filter(({ resource }) => !isNameless(resource))} />
      <Nameless consumers={consumers.filter(({ resource }) => isNameless(resource))} />
    </>
  );
}

const ConsumerList = ({ consumers }: Pick<Radius, "consumers">) => (
  <ul>
    {consumers.map(({ resource, strength, effect, refresh, evidence, resolved }) => (
      <li key={`${resource.id} ${strength}`}>
        <strong>{consumerTitle(resource)}</strong> <Badge appearance="tint">{BADGES[strength]}</Badge>{" "}
        <Badge appearance="tint">{REFRESHES[refresh]}</Badge> {effect} Evidence: {evidence.map(evidenceText).join(", ")}
        .{resolved === false && " Its Key Vault reference is not resolved."}
      </li>
    ))}
  </ul>
);

/** The consumers without a known name. They are folded, because object IDs help few readers. */
const Nameless = ({ consumers }: Pick<Radius, "consumers">) =>
  consumers.length > 0 && (
    <details>
      <summary>
        {counted(consumers.length, "user, group or application", "users, groups or applications")} without a known name
      </summary>
      <Text size={200}>
        Azure names users, groups and some applications by object ID only. To see who they are, search for the IDs in
        the Microsoft Entra admin center.
      </Text>
      <ConsumerList consumers={consumers} />
    </details>
  );

/** The legend of the effects that the consumers have. */
const Effects = ({ of: consumers }: { of: Radius["consumers"] }) => (
  <Text size={200}>
    Effect of a rotation:{" "}
    {(Object.keys(REFRESHES) as (keyof typeof REFRESHES)[])
      .filter((effect) => consumers.some(({ refresh }) => refresh === effect))
      .map((effect) => `“${REFRESHES[effect]}”: ${REFRESH_MEANINGS[effect]}`)
      .join("; ")}
    .
  </Text>
);

/** Badge of a consumer by the kind of evidence. `entitled` is mere access. */
const BADGES = { references: "confirmed", observed: "confirmed", entitled: "possible" } as const;

/** The resources that discovery could not read, up to 20, because they may contain more consumers. */
function Gaps({ coverage: { total, items } }: Pick<Radius, "coverage">) {
  if (total === 0) return <Text>The last discovery could read all monitored resources.</Text>;
  return (
    <>
      <Text>
        {total === 1 ? "1 resource or scope" : `${total.toLocaleString()} resources or scopes`} could not be read, so
        there may be more consumers.
      </Text>
      <ul>
        {items.map(({ scope, source, code, message, remedy }) => (
          <li key={`${scope} ${source} ${code}`}>
            {SOURCES[scope] ?? scope}: {message} {remedy}
          </li>
        ))}
      </ul>
      <Link href={createHref("/dependencies")}>Show all on the Dependencies page</Link>
    </>
  );
}
