-- For redis_exporter -script: every number of INFO lease, which the exporter does not read by itself, by its name.
local numbers = {}
for name, number in string.gmatch(redis.call('INFO', 'lease'), '(lease_[%w_]+):(%d+)') do
  table.insert(numbers, name)
  table.insert(numbers, number)
end
return numbers
