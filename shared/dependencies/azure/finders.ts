import { apiManagement } from "./api-management.ts";
import { appConfiguration } from "./app-configuration.ts";
import { appService } from "./app-service.ts";
import { appServiceCertificate } from "./app-service-certificate.ts";
import { applicationGateway } from "./application-gateway.ts";
import { containerApp, containerAppJob, containerAppsCertificate } from "./container-apps.ts";
import { dataFactory } from "./data-factory.ts";
import { diskEncryptionSet } from "./disk-encryption-set.ts";
import type { Finder } from "./finder.ts";
import { frontDoor } from "./front-door.ts";
import { kubernetesCluster } from "./kubernetes-cluster.ts";
import { apiConnection, logicApp } from "./logic-apps.ts";
import { machineLearning } from "./machine-learning.ts";
import { sqlServer } from "./sql-server.ts";
import { storageAccount } from "./storage-account.ts";
import { virtualMachine, virtualMachineExtension, virtualMachineScaleSet } from "./virtual-machine.ts";

/** The finders of all supported kinds of resources. */
export const FINDERS: readonly Finder[] = [
  appService,
  appServiceCertificate,
  containerApp,
  containerAppJob,
  containerAppsCertificate,
  apiManagement,
  applicationGateway,
  frontDoor,
  dataFactory,
  logicApp,
  apiConnection,
  appConfiguration,
  storageAccount,
  sqlServer,
  diskEncryptionSet,
  kubernetesCluster,
  virtualMachine,
  virtualMachineExtension,
  virtualMachineScaleSet,
  machineLearning,
];

/** Finders by resource type in lower case. */
export const FINDER_OF: ReadonlyMap<string, Finder> = new Map(
  FINDERS.flatMap((finder) => finder.types.map((type) => [type, finder] as const)),
);
