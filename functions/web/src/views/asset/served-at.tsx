import { Badge, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { ChoiceField, NumberField, TextField } from "../../parts/fields.tsx";
import { fieldChoice, fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";

type Served = Schemas["ServedCertificate"];

const PLATFORMS: Record<Served["platform"], string> = {
  other: "Other: within 24 hours",
  appService: "App Service: within 24 hours",
  applicationGateway: "Application Gateway: within 4 hours",
  frontDoor: "Front Door: within 72 hours",
  apiManagement: "API Management: within 4 hours",
  containerApps: "Container Apps: within 12 hours",
};

const PLATFORM_NAMES = Object.keys(PLATFORMS) as Served["platform"][];

/** The card of a certificate's page with the endpoints that serve it. */
export function ServedAt({ assetId, served }: { assetId: string; served: Served[] }) {
  return (
    <>
      {served.length === 0 ? (
        <Text>
          No endpoint is known. Add the host names that serve this certificate, and the service checks every hour
          whether they serve the current version.
        </Text>
      ) : (
        <DataTable
          items={served}
          columns={columnsOf(assetId)}
          keyOf={({ host, port }) => endpointName({ host, port })}
          label="Served at"
        />
      )}
      <ButtonRow>
        <Operate
          operation="addCertificateEndpoint"
          title="Add endpoint"
          action="Add endpoint"
          submit={(form, add) =>
            add({
              body: {
                assetId,
                host: fieldText(form, "host"),
                port: Number(fieldText(form, "port")),
                platform: fieldChoice(form, "platform", PLATFORM_NAMES),
              },
            })
          }
        >
          <Text>
            The service opens a TLS connection to read the certificate, and sends no request. A certificate has at most
            five added endpoints.
          </Text>
          <TextField name="host" label="Host name" hint="Example: www.contoso.com" required />
          <NumberField
            name="port"
            label="Port"
            hint="443, or a port that an administrator allows with ENDPOINT_PORTS."
            defaultValue="443"
            min={1}
            max={65535}
            required
          />
          <ChoiceField name="platform" label="Platform, and its time to serve a new version" options={PLATFORMS} />
        </Operate>
        {served.length > 0 && (
          <Operate
            operation="checkCertificateEndpoints"
            title="Check endpoints"
            action="Check now"
            submit={(_, check) => check({ body: { assetId } })}
          >
            <Text>Reads the certificate that each endpoint serves now. Each endpoint takes up to ten seconds.</Text>
          </Operate>
        )}
      </ButtonRow>
    </>
  );
}

/** The API accepts only letters, digits, hyphens and dots in host names, so that they need no isolation. */
const endpointName = ({ host, port }: Pick<Served, "host" | "port">): string => `${host}:${port}`;

const columnsOf = (assetId: string): Column<Served>[] => [
  {
    title: "Endpoint",
    cell: ({ host, port, resource }) =>
      `${endpointName({ host, port })}${resource === null ? "" : `, ${isolated(resource.name)}`}`,
  },
  { title: "Serves", cell: (row) => <StateBadge row={row} /> },
  { title: "Since", cell: ({ since }) => since && <Instant at={since} /> },
  { title: "Serial number", cell: ({ serial }) => serial },
  {
    title: "Remediation",
    wide: true,
    cell: ({ problems }) => problems.map(({ detail, action }) => `${isolated(detail)} ${action}`).join(" "),
  },
  { title: "Checked", cell: ({ checkedAt }) => (checkedAt ? <Instant at={checkedAt} relative /> : "Not yet") },
  {
    title: "",
    // Endpoints of discovered resources follow the resource.
    cell: ({ host, port, resource }) =>
      resource === null && (
        <Operate
          operation="removeCertificateEndpoint"
          title="Remove"
          kind="endpoint"
          about={endpointName({ host, port })}
          action="Remove endpoint"
          submit={(_, remove) => remove({ params: { query: { assetId, host, port } } })}
        >
          <Text>The service no longer checks this endpoint. You can add the endpoint again.</Text>
        </Operate>
      ),
  },
];

/** Whether the endpoint serves the current version, as text and color. */
function StateBadge({ row: { current, late, problems } }: { row: Served }) {
  // The certificate that a blocked address serves now is unknown.
  const isBlocked = problems.some(({ code }) => code === "blocked");
  const isWrong = problems.some(({ code }) => code !== "oldCertificate" && code !== "blocked");
  const [color, text] = isWrong
    ? (["severe", "a problem"] as const)
    : isBlocked || current === null
      ? (["informative", "unknown"] as const)
      : current
        ? (["success", "current version"] as const)
        : late
          ? (["severe", "an old version, late"] as const)
          : (["informative", "an old version, in time"] as const);
  return (
    <Badge appearance="tint" color={color}>
      {text}
    </Badge>
  );
}
