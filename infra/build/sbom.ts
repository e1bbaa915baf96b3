// Creates the bill of materials of a release: a JSON file that lists all packages in it.

import {
  ComponentType,
  HashAlgorithm,
  LicenseAcknowledgement,
  LifecyclePhase,
} from "@cyclonedx/cyclonedx-library/Enums";
import {
  Bom,
  Component,
  HashDictionary,
  type License,
  LicenseExpression,
  LicenseRepository,
  NamedLicense,
  Property,
  SpdxLicense,
} from "@cyclonedx/cyclonedx-library/Models";
import { JSON as Json, JsonSerializer } from "@cyclonedx/cyclonedx-library/Serialize";
import { isSupportedSpdxId } from "@cyclonedx/cyclonedx-library/SPDX";
import { Spec1dot6 } from "@cyclonedx/cyclonedx-library/Spec";
import { v5 } from "uuid";
import type { Bundled, BundledPackage } from "./packages.ts";

/**
 * Returns the bill of materials in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/): every package of the build with the
 * hash of the installed archive, and the imports between packages. It contains no time, and its serial number is derived from
 * `digest`, so that the same release has the same bill.
 * @param digest identifies the release
 */
export function sbomText(
  app: { name: string; version: string; commit: string | null },
  bundled: Bundled,
  digest: string,
): string {
  const main = new Component(ComponentType.Application, app.name, { bomRef: app.name, version: app.version });
  if (app.commit) main.properties.add(new Property("git:commit", app.commit));
  const components = new Map([...bundled.packages].map(([id, each]) => [id, componentOf(each)]));
  const link = (from: Component, ids: string[]) => {
    for (const id of ids) from.dependencies.add(components.get(id)!.bomRef);
  };
  link(main, bundled.imported);
  for (const [id, { imports }] of bundled.packages) link(components.get(id)!, imports);

  const bom = new Bom({ serialNumber: `urn:uuid:${v5(digest, v5.URL)}` });
  bom.metadata.component = main;
  bom.metadata.lifecycles.add(LifecyclePhase.Build);
  for (const component of components.values()) bom.components.add(component);
  const serializer = new JsonSerializer(new Json.Normalize.Factory(Spec1dot6));
  return `${serializer.serialize(bom, { sortLists: true, space: 2 })}\n`;
}

function componentOf({ name, version, license, integrity }: BundledPackage): Component {
  const [scope, bare] = name.startsWith("@") ? name.split("/") : [undefined, name];
  // https://github.com/package-url/purl-spec/blob/main/types/npm-definition.json
  const purl = `pkg:npm/${scope === undefined ? "" : `${encodeURIComponent(scope)}/`}${bare}@${version}`;
  const sha512 = /^sha512-(\S+)$/.exec(integrity ?? "")?.[1];
  return new Component(ComponentType.Library, bare!, {
    bomRef: purl,
    ...(scope !== undefined && { group: scope }),
    version,
    purl,
    ...(license !== undefined && { licenses: new LicenseRepository([licenceOf(license)]) }),
    ...(sha512 !== undefined && {
      hashes: new HashDictionary([[HashAlgorithm["SHA-512"], Buffer.from(sha512, "base64").toString("hex")]]),
    }),
  });
}

function licenceOf(declared: string): License {
  const acknowledgement = LicenseAcknowledgement.Declared;
  if (isSupportedSpdxId(declared)) return new SpdxLicense(declared, { acknowledgement });
  if (!/ (AND|OR|WITH) /.test(declared)) return new NamedLicense(declared, { acknowledgement });
  const expression = new LicenseExpression(declared);
  expression.acknowledgement = acknowledgement;
  return expression;
}
