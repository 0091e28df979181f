/** Names that the pages use for the types of the manager. */

export type {
  Device,
  DeviceCapabilities,
  DeviceCounter,
  DevicePort,
  Devices,
  Domain,
  Intent,
  IntentCost,
  Intents,
  ManagerChange,
  ManagerHistory,
  ManagerHistoryEntry,
  Plan,
} from './generated';
