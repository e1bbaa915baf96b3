import { Link, Text } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { Card } from "../../parts/card.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { Expiry, Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { credentialTitle } from "../../parts/key-credential.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { KeyRotationState, RotateKey } from "../../parts/rotate-key.tsx";
import { statusTextOf } from "../../parts/rotation-texts.ts";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { isInProgress, KEY_KINDS } from "./rows.ts";

type Credential = Schemas["RotationCredentialDetail"];
type Rotation = Schemas["RotationSummary"];

/** The page of one pair of keys of an Azure resource: what stores it, its rotation, and the earlier rotations. */
export default function OneCredential() {
  const { credentialId = "" } = useParams();
  return (
    <FeatureGate
      operation="getRotationCredential"
      description="Shows the vault secrets that store a key of an Azure resource, and the state of its rotation."
    >
      <Found credentialId={credentialId} />
    </FeatureGate>
  );
}

/** The content of the page. Rendered, and its data loaded, only if the role and the license allow it. */
function Found({ credentialId }: { credentialId: string }) {
  const mayRotate = useMay()("rotateCredential");
  const credential = api.useQuery("get", "/api/automation/rotation/credentials/{credential_id}", {
    params: { path: { credential_id: credentialId } },
  });
  return (
    <QueryResult of={credential}>
      {(data) => (
        <View title={credentialTitle(data)}>
          <Text>
            {KEY_KINDS[data.kind]} {isolated(data.resourceName)} in the resource group {isolated(data.resourceGroup)}.{" "}
            <Link href={createHref("/credentials")}>All credentials</Link>
          </Text>
          <Card title="Rotation">
            <KeyRotationState credential={data} />
            {/* The state above already says that a rotation is in progress. Others see whom to ask for a rotation. */}
            {(data.rotationId === null || !mayRotate) && (
              <div>
                <RotateKey credential={data} />
              </div>
            )}
          </Card>
          <Card title="Stored in">
            {data.rotationId !== null && (
              <Text>
                The rotation in progress changes which key these secrets store. The table shows the last comparison.
              </Text>
            )}
            <DataTable
              items={data.places}
              columns={PLACE_COLUMNS}
              keyOf={({ assetId }) => assetId}
              label="Vault secrets that store a key"
            />
          </Card>
          <Card title="Rotations of this resource">
            <History resourceId={data.resourceId} />
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

const PLACE_COLUMNS: Column<Credential["places"][number]>[] = [
  {
    title: "Vault secret",
    cell: ({ assetId }) => (
      <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{titleOfId(assetId)}</Link>
    ),
  },
  { title: "Key when last compared", cell: ({ keyName }) => keyName },
  { title: "Expires", cell: ({ expiresOn }) => <Expiry at={expiresOn} /> },
  {
    title: "Last compared",
    cell: ({ comparedAt, comparedBy }) => (
      <>
        <Instant at={comparedAt} relative /> by {comparedBy === "rotation" ? "a rotation" : isolated(comparedBy)}
      </>
    ),
  },
];

const ROTATION_COLUMNS: Column<Rotation>[] = [
  {
    title: "Rotation",
    // The API type allows a null ID only because a dry run has none. Rows of the history always have one.
    cell: ({ rotationId, oldKeyId, newKeyId }) => (
      <Link href={createHref(`/rotation/${rotationId ?? ""}`)}>
        {oldKeyId} replaced by {newKeyId ?? "another key"}
      </Link>
    ),
  },
  {
    title: "Status",
    cell: (rotation) => `${isInProgress(rotation) ? "In progress: " : ""}${statusTextOf(rotation)}`,
  },
  { title: "Started", cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
  { title: "Requested by", cell: ({ requestedBy }) => isolated(requestedBy) },
];

/** Number of recent rotations in the list. */
const SHOWN_ROTATIONS = 20;

/** The recent rotations of the keys of a resource, newest first. */
function History({ resourceId }: { resourceId: string }) {
  const history = api.useQuery("get", "/api/automation/rotation/history", {
    params: { query: { resourceId, limit: SHOWN_ROTATIONS } },
  });
  return (
    <QueryResult of={history}>
      {({ items }) =>
        items.length === 0 ? (
          <Text>No rotations yet. To start one, select Rotate key.</Text>
        ) : (
          <DataTable
            items={items}
            columns={ROTATION_COLUMNS}
            keyOf={({ rotationId, createdAt }) => rotationId ?? createdAt}
            label="Rotations of this resource"
          />
        )
      }
    </QueryResult>
  );
}
